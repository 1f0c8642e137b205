//! What keeps a gateway from giving way to another process (`esplanade restart`).

use super::Gateway;

impl Gateway {
    /// Why another process cannot go on where this one stops; none where it can.
    pub(super) fn why_not_leave(&mut self) -> Option<String> {
        if std::env::var_os("NOTIFY_SOCKET").is_some() {
            return Some(
                "a service manager started it and would miss it: restart it there (systemctl restart esplanade@NAME)"
                    .to_owned(),
            );
        }
        if self.rekey.is_some() {
            return Some(
                "a rekey is under way, of which another process would know nothing: wait for its end (`esplanade status`), or \
                 take it back with `esplanade rekey --abort`"
                    .to_owned(),
            );
        }
        let numbers = self.plane.numbers();
        (!numbers.are_kept()).then(|| {
            format!(
                "its numbers are {}. Another process would count from 1, and the peers would refuse what it sends: stop this \
                 one, and start again with new keys on both sides",
                numbers.describe()
            )
        })
    }
}

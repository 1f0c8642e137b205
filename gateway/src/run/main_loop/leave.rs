//! What prevents another process from replacing a gateway (`esplanade restart`).

use super::Gateway;

impl Gateway {
    /// Why another process cannot continue where this one stops; none where it can.
    pub(super) fn why_not_leave(&mut self) -> Option<String> {
        if std::env::var_os("NOTIFY_SOCKET").is_some() {
            return Some(
                "it was started by a service manager: restart it there (systemctl restart esplanade@NAME)"
                    .to_owned(),
            );
        }
        if self.rekey.is_some() {
            return Some(
                "a rekey is in progress, which a new process could not continue: wait for its end (`esplanade \
                 status`), or abort it with `esplanade rekey --abort`"
                    .to_owned(),
            );
        }
        let numbers = self.plane.numbers();
        (!numbers.are_kept()).then(|| {
            format!(
                "its sequence numbers are {}. A new process would start at 1, and the peers would drop its packets \
                 as replayed: stop this one, and start again with new keys on both sides",
                numbers.describe()
            )
        })
    }
}

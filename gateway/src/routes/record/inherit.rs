//! Decides whether a gateway that starts takes over what an earlier one has left.

use super::Record;
use super::network_namespace::NamespaceState;
use crate::control::Folder;
use crate::failure::Failure;
use crate::routes::Site;
use dataplane::io::Warn;

/// Returns the record of an earlier gateway in this network namespace, whose rules are then taken over and not added a
/// second time.
pub(crate) fn inherit(
    folder: &Folder,
    site: &Site,
    warn: &Warn,
) -> Result<Option<Record>, Failure> {
    let control = folder.socket().display();
    let Some(record) = Record::load(folder).map_err(Failure::new)? else {
        return Ok(None);
    };
    match record.whereabouts().map_err(Failure::new)? {
        NamespaceState::Here => {}
        NamespaceState::BeforeBoot => return Ok(None),
        NamespaceState::Gone(name) => {
            warn(&format!(
                "the last gateway of {control} left its rules in network namespace {name}, which no longer exists: \
                 its record is replaced"
            ));
            return Ok(None);
        }
        NamespaceState::Elsewhere { name, enter } => {
            return Err(Failure::new(format!(
                "the last gateway of {control} left its rules in another network namespace, {name}: remove them \
                 there ({enter} esplanade down --control {control}), or choose another socket with --control"
            )));
        }
    }
    if record.site().map_err(Failure::new)? != *site {
        return Err(Failure::new(format!(
            "an earlier gateway at {control} left rules for device {} and table {}: remove them with `esplanade down \
             --control {control}`, or use the same --tun or --forward, --table and --mark",
            record.tun, record.table
        )));
    }
    Ok(Some(record))
}

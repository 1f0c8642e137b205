//! The settings of a cell: values under the names of their factors.

use std::collections::BTreeMap;

/// Values under the names of their factors, each as it is written in a record.
pub(super) type Settings = BTreeMap<&'static str, String>;

/// A setting that is a number.
pub(super) fn number(settings: &Settings, name: &str) -> Option<f64> {
    settings.get(name)?.parse().ok()
}

/// A setting that is true or false.
pub(super) fn flag(settings: &Settings, name: &str) -> Option<bool> {
    settings.get(name)?.parse().ok()
}

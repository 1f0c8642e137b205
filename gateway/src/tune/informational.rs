//! Rows that are shown only: this program neither changes nor recommends them.

use super::host::{Host, Reading, Target};

/// The value of a row that is advice alone.
pub(super) fn nothing(_: &dyn Host) -> Option<String> {
    Some("see below".to_owned())
}

/// Whether cores run two threads.
pub(super) fn smt(host: &dyn Host) -> Option<String> {
    value(host, "/sys/devices/system/cpu/smt/control")
}

/// Whether irqbalance runs.
pub(super) fn irqbalance(host: &dyn Host) -> Option<String> {
    let is_process = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    let runs = host.list("/proc").into_iter().filter(is_process).any(|id| {
        value(host, &format!("/proc/{id}/comm")).is_some_and(|name| name == "irqbalance")
    });
    Some(if runs { "runs" } else { "does not run" }.to_owned())
}

/// How many CPU vulnerabilities the kernel mitigates.
pub(super) fn mitigations(host: &dyn Host) -> Option<String> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    let all = host.list(folder);
    let mitigated = all.iter().filter(|name| {
        let text = value(host, &format!("{folder}/{name}"));
        text.is_some_and(|text| text.starts_with("Mitigation"))
    });
    (!all.is_empty()).then(|| format!("{} of {}", mitigated.count(), all.len()))
}

/// How many connections are tracked.
pub(super) fn conntrack(host: &dyn Host) -> Option<String> {
    let count = value(host, "/proc/sys/net/netfilter/nf_conntrack_count")?;
    Some(format!("{count} tracked"))
}

fn value(host: &dyn Host, path: &str) -> Option<String> {
    match host.read(&Target::file(path.to_owned())) {
        Reading::Value(text) => Some(text),
        _ => None,
    }
}

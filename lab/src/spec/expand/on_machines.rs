//! What of a study is measured on the machines that `lab run --hosts` names. A setting that a machine has by itself is
//! left as it is there; where such a setting varies, or decides what is measured, those cells are left out.

use std::collections::BTreeSet;

use crate::spec::hosts::{HostCount, has_by_itself, only_in_namespaces};
use crate::spec::settings::Settings;

/// The combinations that are left, and a sentence on each thing that is not done.
pub(super) fn fit(
    all: Vec<Settings>,
    machines: HostCount,
    part: Option<&str>,
) -> (Vec<Settings>, Vec<String>) {
    let (mut left, mut said) = (all, Vec::new());
    let of_part = part.map_or(String::new(), |name| format!("{name}: "));
    let names: BTreeSet<&'static str> = left.iter().flat_map(Settings::keys).copied().collect();
    for name in names {
        let Some((what, _)) = only_in_namespaces(name).filter(|_| !is_usual(&left, name)) else {
            continue;
        };
        let levels: BTreeSet<Option<&String>> = left.iter().map(|one| one.get(name)).collect();
        if has_by_itself(name) && levels.len() == 1 {
            said.push(format!(
                "{of_part}{what}: it is left as the machines have it"
            ));
        } else {
            said.push(format!("{of_part}{what}: cells with it are left out"));
            left.retain(|settings| !settings.contains_key(name));
        }
    }
    for settings in &mut left {
        settings.retain(|name, _| only_in_namespaces(name).is_none());
        match machines {
            HostCount::Two => settings.insert("testbed", "pair".into()),
            HostCount::Four => settings.remove("testbed"),
        };
    }
    (left, said)
}

/// IPv4 in IPv4 is what machines are measured over.
fn is_usual(all: &[Settings], name: &str) -> bool {
    name == "families"
        && all
            .iter()
            .all(|one| one.get(name).is_none_or(|all| all == "4in4"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&'static str, &str)]) -> Settings {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        pairs.collect()
    }

    #[test]
    fn what_is_alike_everywhere_is_left_to_the_machine() {
        let all = vec![
            settings(&[
                ("rps_cpus", "0"),
                ("link.rate_mbit", "1000"),
                ("mtu", "1500"),
            ]),
            settings(&[
                ("rps_cpus", "0"),
                ("link.rate_mbit", "1000"),
                ("mtu", "9000"),
            ]),
        ];
        let (left, said) = fit(all, HostCount::Two, Some("sizes"));
        let pair = |mtu| settings(&[("mtu", mtu), ("testbed", "pair")]);
        assert_eq!(left, [pair("1500"), pair("9000")]);
        assert_eq!(said.len(), 2, "{said:?}");
        let word = "sizes: `rps_cpus` can only be set in namespaces: it is left as the machines";
        assert!(said.iter().any(|why| why.starts_with(word)), "{said:?}");
    }

    #[test]
    fn where_it_varies_or_decides_the_cells_are_left_out() {
        let varied = vec![
            settings(&[("rps_cpus", "0")]),
            settings(&[("rps_cpus", "0-1")]),
        ];
        let (left, said) = fit(varied, HostCount::Four, None);
        assert!(
            left.is_empty() && said[0].ends_with("cells with it are left out"),
            "{said:?}"
        );
        let lossy = vec![settings(&[("impair.loss_percent", "1")]), settings(&[])];
        let (left, _) = fit(lossy, HostCount::Four, None);
        assert_eq!(left, [settings(&[])]);
        let (left, said) = fit(
            vec![settings(&[("families", "4in4")])],
            HostCount::Two,
            None,
        );
        assert_eq!(
            (left, said),
            (vec![settings(&[("testbed", "pair")])], vec![])
        );
    }
}

//! By what a claim is judged, in a few words.

use std::collections::BTreeMap;

use super::{Claim, Comparison, Deciding, Levels, MachineClass, is_one_of};
use crate::report::quantity::{Scale, significant};

impl Claim {
    /// In which parts of the study its cells are, and on which machines.
    pub fn held_in(&self) -> String {
        let parts = match self.of.get("part") {
            Some(parts) => format!("`{}`", parts.replace('|', "`, `")),
            None => "every part".into(),
        };
        match self.machine {
            MachineClass::Any => parts,
            class => format!("{parts}; --for {}", class.name()),
        }
    }

    /// Whether a cell to be measured is one that it is about, or one that it compares those to.
    pub fn needs(&self, contender: &str, factors: &BTreeMap<String, String>) -> bool {
        let fits = |name: &str, levels: &str| match name {
            "contender" => is_one_of(contender, levels),
            name => is_one_of(factors.get(name).map_or("", String::as_str), levels),
        };
        let all = |levels: &Levels| levels.iter().all(|(name, level)| fits(name, level));
        // What such a cell is compared to shares with it what is not named, as far as it has it.
        let shares = |levels: &Levels| {
            let mut rest = self
                .of
                .iter()
                .filter(|(name, _)| !levels.contains_key(*name));
            rest.all(|(name, level)| {
                (name != "contender" && !factors.contains_key(name)) || fits(name, level)
            })
        };
        let than = self.than.iter().flat_map(|than| [&than.of, &than.to]);
        let mut others = self.to.iter().chain(than);
        all(&self.of) || others.any(|levels| all(levels) && shares(levels))
    }

    /// What is compared, and within which limits it holds.
    pub fn judged_by(&self) -> String {
        let figure = self.figure.as_deref().unwrap_or("result");
        let what = match (&self.to, &self.than, self.by) {
            (None, ..) => format!("`{figure}`"),
            (_, None, Comparison::Ratio) => format!("`{figure}`, ratio"),
            (_, None, Comparison::Difference) => format!("`{figure}`, difference"),
            (_, Some(_), Comparison::Ratio) => format!("`{figure}`, ratio of two gains"),
            (_, Some(_), Comparison::Difference) => format!("`{figure}`, ratio of two differences"),
        };
        let which = match self.decides {
            Deciding::Every => "",
            Deciding::Largest => ", best case",
            Deciding::Smallest => ", worst case",
        };
        let ours = if self.is_limit_ours() {
            " (this lab's limit)"
        } else {
            ""
        };
        format!("{what}{which}: {}{ours}", self.limits(figure))
    }

    /// Whether the paper says it in words, so that a number had to be chosen here. None at all, most of it, and more or
    /// less than the other follow from the words.
    fn is_limit_ours(&self) -> bool {
        let is_ratio = self.to.is_some() && self.by == Comparison::Ratio;
        let follows = |limit: f64| limit == 0.0 || limit == if is_ratio { 1.0 } else { 0.5 };
        let mut limits = [self.at_least, self.at_most].into_iter().flatten();
        self.reported.is_empty() && !limits.all(follows)
    }

    fn limits(&self, figure: &str) -> String {
        let is_difference = self.by == Comparison::Difference && self.than.is_none();
        let text = |value: f64| match (&self.to, is_difference) {
            (None, _) => Scale::of(figure, value).text(value),
            (_, true) => Scale::of("goodput_bps", value).text(value),
            (_, false) => significant(value),
        };
        match (self.at_least, self.at_most) {
            (Some(least), Some(most)) => format!("{} to {}", text(least), text(most)),
            (Some(least), None) => format!("at least {}", text(least)),
            (None, Some(most)) => format!("at most {}", text(most)),
            (None, None) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Paper;
    use super::*;

    #[test]
    fn a_machine_class_gets_the_cells_of_its_claims_and_what_these_are_compared_to() {
        let paper = Paper::of("klassert-2010").unwrap();
        let needed = |contender: &str, factors: &[(&str, &str)]| {
            let factors = factors.iter().map(|(a, b)| ((*a).into(), (*b).into()));
            let factors: BTreeMap<String, String> = factors.collect();
            let mut claims = paper.claim.iter();
            claims.any(|claim| {
                claim.machine == MachineClass::KernelIpsec && claim.needs(contender, &factors)
            })
        };
        let (parallel, serial) = ("kernel-xfrm-aes-pcrypt", "kernel-xfrm-aes");
        assert!(needed(parallel, &[("part", "sizes"), ("pcrypt", "true")]));
        assert!(needed(serial, &[("part", "sizes"), ("pcrypt", "false")]));
        assert!(!needed("plain", &[("part", "sizes")]));
        assert!(!needed(
            "esplanade-x",
            &[("part", "sizes"), ("workers", "2")]
        ));
    }

    #[test]
    fn a_limit_that_no_paper_gives_is_marked_as_ours() {
        let claims = |study: &str| Paper::of(study).unwrap().claim;
        let judged = |study: &str, beginning: &str| {
            let mut claims = claims(study).into_iter();
            let found = claims.find(|claim| claim.finding.starts_with(beginning));
            found.unwrap().judged_by()
        };
        let ours = judged("iatrou-2009", "Plain IP saturates");
        assert_eq!(ours, "`ideal_ratio`: at least 97.0 % (this lab's limit)");
        for (study, beginning) in [
            ("iatrou-2009", "At 1 Gbit/s confidentiality"),
            ("iatrou-2009", "At 1 Gbit/s softirq and irq"),
            ("iatrou-2009", "With these TCP options and buffers"),
            ("klassert-2010", "R3"),
        ] {
            let judged = judged(study, beginning);
            assert!(!judged.ends_with("limit)"), "{beginning}: {judged}");
        }
    }

    #[test]
    fn plain_ip_is_needed_where_a_claim_compares_to_it() {
        let paper = Paper::of("roy-2004").unwrap();
        let mut claims = paper.claim.iter();
        let kernel = claims
            .find(|claim| claim.machine == MachineClass::KernelIpsec)
            .unwrap();
        let part = |name: &str| BTreeMap::from([("part".to_owned(), name.to_owned())]);
        assert!(kernel.needs("plain", &part("tcp")));
        assert!(!kernel.needs("plain", &part("udp")));
    }
}

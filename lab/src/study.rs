//! The studies that come with the lab. Each is a spec like a user's own: `lab run demo` is `lab run demo.toml`.

/// A spec that comes with the lab.
pub(crate) struct Study {
    /// The name a user types.
    pub name: &'static str,
    /// The text of its spec.
    pub text: &'static str,
}

/// All of them.
#[rustfmt::skip]
pub(crate) const STUDIES: [Study; 11] = [
    Study { name: "demo", text: include_str!("../studies/demo.toml") },
    Study { name: "bars", text: include_str!("../studies/bars.toml") },
    Study { name: "iatrou-2009", text: include_str!("../studies/iatrou-2009.toml") },
    Study { name: "ronan-2004", text: include_str!("../studies/ronan-2004.toml") },
    Study { name: "roy-2004", text: include_str!("../studies/roy-2004.toml") },
    Study { name: "klassert-2010", text: include_str!("../studies/klassert-2010.toml") },
    Study { name: "peers", text: include_str!("../studies/peers.toml") },
    Study { name: "tune", text: include_str!("../studies/tune.toml") },
    Study { name: "rekey", text: include_str!("../studies/rekey.toml") },
    Study { name: "pmtu", text: include_str!("../studies/pmtu.toml") },
    Study { name: "soak", text: include_str!("../studies/soak.toml") },
];

/// The study of this name.
pub(crate) fn find(name: &str) -> Option<&'static Study> {
    STUDIES.iter().find(|study| study.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Preset, Spec};

    #[test]
    fn every_study_is_a_good_spec_under_its_own_name() {
        for study in &STUDIES {
            let spec = Spec::read(study.text, study.name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(spec.study, study.name);
        }
    }

    #[test]
    fn every_smoke_is_short_and_lists_what_it_leaves_out() {
        for study in STUDIES.iter().filter(|study| study.name != "demo") {
            let smoke = Spec::read_as(study.text, study.name, Some(Preset::Smoke))
                .unwrap_or_else(|error| panic!("{error}"));
            let (seconds, trials) = (smoke.estimate().as_secs(), smoke.cells.len());
            assert!(
                seconds <= 30,
                "{}: {trials} trials, {seconds} s",
                study.name
            );
            assert!(
                smoke.leaves_out.is_some() && !smoke.cells.is_empty(),
                "{}",
                study.name
            );
        }
    }

    #[test]
    fn every_standard_run_fits_a_hundred_minutes() {
        for study in &STUDIES {
            let standard = Spec::read_as(study.text, study.name, Some(Preset::Standard))
                .unwrap_or_else(|error| panic!("{error}"));
            let minutes = standard.estimate().as_secs() / 60;
            assert!(minutes <= 100, "{}: {minutes} min", study.name);
        }
    }

    #[test]
    fn the_study_of_2009_has_its_eighteen_setups_and_both_ways_to_combine() {
        let spec = Spec::read(find("iatrou-2009").unwrap().text, "iatrou-2009").unwrap();
        let mut ids = spec.contenders();
        let control = ids.iter().filter(|id| id.contains("transport")).count();
        assert_eq!(
            control,
            3 + 5,
            "in transport mode: of `modes` and of `mtu`; `tcp` has the same"
        );
        ids.retain(|id| !id.contains("transport"));
        // No setup of theirs: beside the profiles it shows what all but the ciphers takes.
        let all = ids.len();
        ids.retain(|id| !id.starts_with("esplanade-null"));
        assert_eq!(all - ids.len(), 1);
        let of = |word: &str| ids.iter().filter(|id| id.contains(word)).count();
        let ours = of("esplanade-");
        let kernel = of("kernel-xfrm-");
        assert_eq!((of("plain"), kernel, ours), (1, 3 + 1, 7 + 2 * 10));
        assert_eq!(of("esp+ah"), 10 + 1, "ours and the kernel's");
    }

    #[test]
    fn the_demo_compares_plain_ip_libipsec_and_six_suites() {
        let spec = Spec::read(find("demo").unwrap().text, "demo").unwrap();
        assert_eq!(
            spec.contenders(),
            [
                "plain",
                "plain-no-offloads",
                "kernel-libipsec-aes-128-gcm",
                "esplanade-null",
                "esplanade-aes-128-gcm",
                "esplanade-chacha20-poly1305",
                "esplanade-aes-128-cbc-sha1",
                "esplanade-aes-192-cbc-sha1",
                "esplanade-3des-sha1",
            ]
        );
    }
}

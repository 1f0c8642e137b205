//! The studies that come with the lab. Each is a spec like a user's own: `lab run demo` is `lab run demo.toml`.

/// A spec that comes with the lab.
pub struct Study {
    /// The name a user types.
    pub name: &'static str,
    /// The text of its spec.
    pub text: &'static str,
}

/// All of them.
pub const STUDIES: [Study; 2] = [
    Study {
        name: "demo",
        text: include_str!("../studies/demo.toml"),
    },
    Study {
        name: "bars",
        text: include_str!("../studies/bars.toml"),
    },
];

/// The study of this name.
pub fn find(name: &str) -> Option<&'static Study> {
    STUDIES.iter().find(|study| study.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    #[test]
    fn every_study_is_a_good_spec_under_its_own_name() {
        for study in &STUDIES {
            let spec = Spec::read(study.text, study.name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(spec.study, study.name);
        }
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

//! What the kernel's plane alone has.

use super::Unsupported;
use ipsec::database::Snapshot;
use ipsec::sa::SaConfig;

/// Why our own data plane cannot serve an association, if it cannot.
pub(crate) fn serves(config: &SaConfig) -> Result<(), Unsupported> {
    let refusals = [
        (
            config.cpu.is_some(),
            "`-o cpu` needs the kernel's plane (`esplanade run --plane kernel`); here `-o spread` of a policy spreads \
             flows over several associations",
        ),
        (
            config.offload.is_some(),
            "`-o offload` needs the kernel's plane (`esplanade run --plane kernel`); here no network card takes part",
        ),
    ];
    match refusals.iter().find(|(applies, _)| *applies) {
        Some((_, sentence)) => Err(Unsupported::new(*sentence)),
        None => Ok(()),
    }
}

/// Why the associations of these databases stay on their plane, if they do.
pub(crate) fn stays(snapshot: &Snapshot) -> Option<String> {
    snapshot.sas().find_map(|sa| {
        let SaConfig { id, aggfrag, .. } = &sa.config;
        let why = match (aggfrag, serves(&sa.config)) {
            (Some(_), _) => {
                "`-o aggfrag`: parts of packets are with one plane until the rest comes"
            }
            (None, Err(_)) => "`-o cpu` and `-o offload` are of the kernel's plane alone",
            (None, Ok(())) => return None,
        };
        Some(format!(
            "the association to {} with SPI {}: {why}",
            id.destination, id.spi
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipsec::database::Database;
    use ipsec::setkey::{Forwarding, NoNames, compile};

    fn of(options: &str) -> Option<String> {
        let text = format!(
            "add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel {options} \
             -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;"
        );
        let commands = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames);
        let mut database = Database::default();
        let commands = commands.unwrap().commands;
        database.apply(&commands, 0, &mut || 0).unwrap();
        let snapshot = database.snapshot();
        let refused = snapshot.sas().find_map(|sa| serves(&sa.config).err());
        let is_of_the_kernel = options.contains("cpu") || options.contains("offload");
        assert_eq!(refused.is_some(), is_of_the_kernel, "{options}");
        stays(&snapshot)
    }

    #[test]
    fn what_one_plane_alone_has_is_refused_on_the_other_and_does_not_move() {
        for option in ["cpu=0", "offload=crypto:lo", "aggfrag"] {
            let why = of(&format!("-o {option}")).unwrap();
            let option = option.split('=').next().unwrap();
            assert!(why.contains(option) && why.contains("0x00001001"), "{why}");
        }
        assert_eq!(of("-r 64"), None);
    }
}

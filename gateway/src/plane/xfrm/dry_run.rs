//! A dry run: the commands are tried on databases in memory, filled from the kernel's.

use super::XfrmPlane;
use super::association::{self, XfrmState};
use super::socket::Refusal;
use crate::plane::Unsupported;
use ipsec::command::{Command, Refused};
use ipsec::database::Database;
use ipsec::sa::{SaConfig, SaId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl XfrmPlane {
    /// Tries the commands on databases in memory, filled from the kernel's: most errors show before anything changes.
    pub(super) fn dry_run(&mut self, commands: &[Command]) -> Result<(), Refused> {
        let (mut database, mut dry_run) = (Database::default(), DryRun::default());
        let whole_list = |refusal: Refusal| Refused {
            index: commands.len(),
            reason: refusal.to_string(),
        };
        for (_, found) in self.sas().map_err(whole_list)? {
            match found {
                XfrmState::Sa(report) => dry_run.add(&mut database, report.config),
                XfrmState::Larval(id) => drop(dry_run.larval.insert(id)),
                XfrmState::Other => {}
            }
        }
        for (_, report) in self.policies().map_err(whole_list)? {
            let policies = report.map(|report| Command::AddPolicy(report.policy));
            // Two policies that differ only in something that setkey syntax cannot express count as one here.
            let _ = database.apply(policies.as_slice(), 0, &mut || 0);
        }
        for (index, command) in commands.iter().enumerate() {
            let tried = dry_run.try_on(&mut database, command);
            tried.map_err(|Unsupported(reason)| Refused { index, reason })?;
        }
        Ok(())
    }
}

/// What the databases do not record: the configurations, and SPIs that wait for keys.
#[derive(Default)]
struct DryRun {
    configs: HashMap<SaId, Arc<SaConfig>>,
    larval: HashSet<SaId>,
}

impl DryRun {
    fn add(&mut self, database: &mut Database, config: Arc<SaConfig>) {
        self.configs.insert(config.id, Arc::clone(&config));
        // Two associations that differ only in something that setkey syntax cannot express count as one here.
        let _ = database.apply(&[Command::AddSa(config)], 0, &mut || 0);
    }

    fn try_on(&mut self, database: &mut Database, command: &Command) -> Result<(), Unsupported> {
        let mut command = command.clone();
        match &command {
            Command::UpdateSa(config) if self.larval.remove(&config.id) => {
                command = Command::AddSa(Arc::clone(config));
            }
            Command::UpdateSa(config) => {
                if let Some(old) = self.configs.get(&config.id) {
                    association::check_update(old, config)?;
                }
            }
            Command::DeleteSa { id, .. } if self.larval.remove(id) => return Ok(()),
            _ => {}
        }
        if let Command::AddSa(config) | Command::UpdateSa(config) = &command {
            self.configs.insert(config.id, Arc::clone(config));
        }
        let applied = database.apply(std::slice::from_ref(&command), 0, &mut || 0);
        applied
            .map(drop)
            .map_err(|refused| Unsupported(refused.reason))
    }
}

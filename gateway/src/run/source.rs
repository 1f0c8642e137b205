//! What a gateway is configured by: one setkey file, or a configuration with its peers and the setkey files that it
//! includes. Read at the start and at each SIGHUP.

use super::RunOptions;
use super::key_file::KeyFile;
use crate::apply;
use crate::config::{self, Config, ConfiguredPeer};
use crate::control::SetkeyText;
use crate::failure::Failure;
use crate::memory;
use crate::privileges::{AllowedFiles, User};
use clap::{Args as _, Command, FromArgMatches as _};
use dataplane::io::Warn;
use rustix::fs::{Mode, OFlags, open};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use zeroize::Zeroizing;

/// The files of a gateway.
pub(super) struct Source {
    /// The configuration, if there is one.
    config: Option<(PathBuf, KeyFile)>,
    setkey: Vec<KeyFile>,
    /// Folders of keys and certificates, opened while every folder could be.
    folders: Vec<OwnedFd>,
    user: User,
}

/// What the files say.
pub(super) struct Content {
    /// The setkey text of all of them.
    pub text: SetkeyText,
    /// The peers; none without a configuration.
    pub peers: Option<Vec<ConfiguredPeer>>,
}

/// The options with those of the configuration, which those of the command line override.
pub(super) fn options(given: &RunOptions) -> Result<(RunOptions, Option<Config>), Failure> {
    let Some(path) = &given.config else {
        return match &given.setkey {
            Some(_) => Ok((given.clone(), None)),
            None => Err(Failure::with_code(
                "nothing to run: give --config FILE (`esplanade init` writes one) or --setkey FILE",
                2,
            )),
        };
    };
    let config = memory::with_keys(|| config::load(path, &[]))?;
    let own = std::env::args_os().skip(1);
    let own = own
        .skip_while(|word| word != "run" && word != "restart")
        .skip(1);
    let words = config
        .gateway
        .arguments
        .iter()
        .map(OsString::from)
        .chain(own);
    let command = Command::new("run")
        .no_binary_name(true)
        .args_override_self(true);
    let matches = RunOptions::augment_args(command).try_get_matches_from(words);
    let matches = matches.map_err(|error| Failure::new(error.to_string().trim_end()))?;
    let options = RunOptions::from_arg_matches(&matches).map_err(Failure::new)?;
    Ok((options, Some(config)))
}

impl Source {
    /// The files of these options.
    pub(super) fn new(
        options: &RunOptions,
        config: Option<&Config>,
        user: &User,
    ) -> Result<Self, Failure> {
        let included = config
            .map(|config| &*config.gateway.setkey)
            .unwrap_or_default();
        let setkey = options.setkey.iter().chain(included);
        let setkey = setkey.map(|path| KeyFile::new(path, user));
        let folders = config.iter().flat_map(|config| &config.gateway.folders);
        let folders = folders.map(|path| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let cannot = |error| {
                let path = path.display();
                Failure::new(format!("cannot open the folder {path}: {error}"))
            };
            open(path, flags, Mode::empty()).map_err(cannot)
        });
        let folders = folders.collect::<Result<_, _>>()?;
        let own = options.config.as_ref();
        let own = own.map(|path| Ok::<_, Failure>((path.clone(), KeyFile::new(path, user)?)));
        Ok(Self {
            folders,
            setkey: setkey.collect::<Result<_, _>>()?,
            config: own.transpose()?,
            user: user.clone(),
        })
    }

    /// The user of the gateway that reads them.
    pub(super) fn user(&self) -> &User {
        &self.user
    }

    /// Keeps their folders accessible.
    pub(super) fn stay_readable(&self, places: &mut AllowedFiles) -> io::Result<()> {
        let config = self.config.iter().map(|(_, file)| file);
        let mut files = config.chain(&self.setkey);
        files.try_for_each(|file| file.stay_readable(places))?;
        let mut folders = self.folders.iter();
        folders.try_for_each(|folder| places.read_files_in(folder.as_fd()))
    }

    /// The present content of the setkey files, as one text. Mistakes are reported file by file.
    pub(super) fn read(&self, warn: &Warn) -> Result<SetkeyText, Failure> {
        if let [only] = &*self.setkey {
            return only.read(warn);
        }
        let mut all = SetkeyText {
            name: "setkey files".to_owned(),
            pid: std::process::id(),
            ..SetkeyText::default()
        };
        let mut parts = Vec::new();
        for file in &self.setkey {
            let text = file.read(warn)?;
            apply::parse(&text)?;
            parts.push(text);
        }
        let length = parts.iter().map(|part| part.text.len() + 1).sum();
        let mut text = Zeroizing::new(Vec::with_capacity(length));
        for part in &parts {
            text.extend_from_slice(&part.text);
            text.push(b'\n');
        }
        all.text = text;
        Ok(all)
    }

    /// The present content of the configuration and of the setkey files that it includes now.
    pub(super) fn read_again(
        &mut self,
        previous: &[ConfiguredPeer],
        warn: &Warn,
    ) -> Result<Content, Failure> {
        let Some((path, _)) = &self.config else {
            let text = self.read(warn)?;
            return Ok(Content { text, peers: None });
        };
        let config = config::load_again(path, previous)?;
        for warning in &config.warnings {
            eprint!("{warning}");
        }
        let setkey = config.gateway.setkey.iter();
        let setkey = setkey.map(|path| KeyFile::new(path, &self.user));
        self.setkey = setkey.collect::<Result<_, _>>()?;
        let text = self.read(warn)?;
        Ok(Content {
            text,
            peers: Some(config.peers),
        })
    }
}

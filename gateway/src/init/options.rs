//! The options of `esplanade init`.

use crate::config::DEFAULT_PATH;
use clap::Args;
use std::path::PathBuf;

/// What `esplanade init` takes.
#[derive(Args)]
pub(crate) struct InitOptions {
    /// The configuration to write
    #[arg(value_name = "FILE", default_value = DEFAULT_PATH)]
    pub(super) file: PathBuf,
    /// What the peer is called
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// This gateway's address; `any` where it changes
    #[arg(long, value_name = "ADDRESS")]
    pub(super) local: Option<String>,
    /// The peer's address or host name; `any`: the peer begins
    #[arg(long, value_name = "ADDRESS")]
    pub(super) remote: Option<String>,
    /// Who this gateway is [default: its address]
    #[arg(long, value_name = "IDENTITY")]
    pub(super) local_id: Option<String>,
    /// Who the peer has to prove to be [default: its address]
    #[arg(long, value_name = "IDENTITY")]
    pub(super) remote_id: Option<String>,
    /// Networks behind this gateway
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    pub(super) local_network: Vec<String>,
    /// Networks behind the peer
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    pub(super) remote_network: Vec<String>,
    /// A pre-shared key that the peer has already [default: make one, beside FILE]
    #[arg(long, value_name = "PATH")]
    pub(super) psk_file: Option<PathBuf>,
    /// Do not ask, even on a terminal
    #[arg(long)]
    pub(super) no_questions: bool,
}

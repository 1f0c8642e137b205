//! Which plane a gateway is to use.

use std::fmt;
use std::str::FromStr;

/// The value of `--plane`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum PlaneWish {
    /// The gateway's own.
    #[default]
    User,
    /// The kernel's own IPsec.
    Kernel,
    /// The kernel's if a trial shows that it can do what is configured, else the gateway's own.
    Auto,
}

/// A word that is none of them.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
#[error("user, kernel or auto is expected")]
pub(crate) struct UnknownPlane;

impl FromStr for PlaneWish {
    type Err = UnknownPlane;

    fn from_str(word: &str) -> Result<Self, UnknownPlane> {
        match word {
            "user" => Ok(Self::User),
            "kernel" => Ok(Self::Kernel),
            "auto" => Ok(Self::Auto),
            _ => Err(UnknownPlane),
        }
    }
}

impl fmt::Display for PlaneWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Kernel => "kernel",
            Self::Auto => "auto",
        })
    }
}

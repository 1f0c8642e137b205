//! Numbers that IANA's registry for IKEv2 names, each kind a type of its own.

/// A number that may have a name: an unknown one keeps its value.
macro_rules! numbers {
    ($(#[$about:meta])* $kind:ident($number:ty) { $($constant:ident = $value:literal, $name:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
        pub struct $kind(pub $number);

        impl $kind {
            $(#[doc = $name] pub const $constant: Self = Self($value);)*

            /// Its name in RFC 7296 or in IANA's registry, where it has one.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$constant => Some($name),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "number {}", self.0),
                }
            }
        }
    };
}

pub(crate) use numbers;

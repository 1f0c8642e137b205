//! Who carries protected traffic: the gateway through its TUN device, the kernel's own IPsec, or both.

/// The planes that carry the traffic of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Planes {
    /// The gateway's own: through the TUN device and the devices beside it.
    #[default]
    User,
    /// The kernel's own IPsec; there is no TUN device.
    Kernel,
    /// Both, while traffic moves from one to the other: routes with a way of their own lead to the kernel, all others
    /// to the TUN device.
    Both {
        /// Whether the kernel may open packets. Until then what arrives in clear is still judged before routing, which
        /// would also drop what the kernel has opened in tunnel mode.
        kernel_opens: bool,
    },
}

impl Planes {
    /// Whether the gateway's devices carry traffic.
    pub(crate) fn by_user(self) -> bool {
        self != Self::Kernel
    }

    /// Whether the kernel's own IPsec carries traffic.
    pub(crate) fn by_kernel(self) -> bool {
        self != Self::User
    }

    /// Whether the kernel's own IPsec opens packets.
    pub(crate) fn kernel_opens(self) -> bool {
        match self {
            Self::User => false,
            Self::Kernel => true,
            Self::Both { kernel_opens } => kernel_opens,
        }
    }

    /// Those of a plan that is in force while `self` is replaced by `next`: the traffic of both passes, and what
    /// arrives is judged as before.
    pub(crate) fn replaced_by(self, next: Self) -> Self {
        if self == next {
            return self;
        }
        Self::Both {
            kernel_opens: self.kernel_opens(),
        }
    }
}

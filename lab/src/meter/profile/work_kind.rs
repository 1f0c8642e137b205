//! What kind of work a function does, by its name: tables of beginnings, as the kernel and the common libraries name
//! theirs. A function without a kind (a lock, an allocation) has the kind of its caller.

use super::samples::Sample;

/// The kinds of work, each with its name for readers.
pub const WORK_KINDS: [(&str, &str); 7] = [
    ("cipher", "ciphers"),
    ("checksum", "checksums"),
    ("own", "own code"),
    ("copies", "copies"),
    ("network", "network stack"),
    ("scheduling", "scheduling, waiting"),
    ("kernel", "rest of the kernel"),
];

/// Which of [`WORK_KINDS`] a sample was in.
pub(super) fn work_kind(sample: &Sample<'_>) -> &'static str {
    if sample.kernel.is_empty() {
        return sample.user.first().map_or("own", |leaf| own(*leaf));
    }
    // The interrupted frames below a softirq are ignored.
    let frames = sample.in_softirq().unwrap_or(&sample.kernel);
    let known = frames.iter().find_map(|function| kernel(function));
    known.unwrap_or("kernel")
}

/// Words in the names of functions that encipher or authenticate.
const CIPHERS: [&str; 27] = [
    "aes",
    "aesni",
    "vaes",
    "gcm",
    "ghash",
    "gmac",
    "chacha",
    "chacha20",
    "poly1305",
    "sha1",
    "sha256",
    "sha384",
    "sha512",
    "sha2",
    "sha",
    "md5",
    "hmac",
    "des",
    "des3",
    "cbc",
    "ctr",
    "ccm",
    "xcbc",
    "cmac",
    "camellia",
    "blowfish",
    "multibuffer",
];
/// Beginnings of such words, as in `aes128` and `chacha20poly1305`.
const CIPHER_STEMS: [&str; 5] = ["aes", "chacha", "poly1305", "ghash", "sha"];
/// Libraries that do nothing else.
const CIPHER_FILES: [&str; 5] = [
    "libcrypto",
    "libgcrypt",
    "libmbedcrypto",
    "libsodium",
    "libnettle",
];

/// A function of a program, by words in its name.
fn own((symbol, file): (&str, &str)) -> &'static str {
    let file = file.rsplit('/').next().unwrap_or_default();
    if CIPHER_FILES.iter().any(|library| file.starts_with(library)) {
        return "cipher";
    }
    let lower = symbol.to_ascii_lowercase();
    let words = || lower.split(|letter: char| !letter.is_ascii_alphanumeric());
    if words().any(enciphers) {
        return "cipher";
    }
    let told = words().find_map(|word| match word {
        "checksum" | "csum" => Some("checksum"),
        "memcpy" | "memmove" => Some("copies"),
        _ => None,
    });
    told.unwrap_or("own")
}

fn enciphers(word: &str) -> bool {
    let numbered = |stem: &&str| {
        let rest = word.strip_prefix(*stem);
        rest.is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
    };
    CIPHERS.contains(&word) || CIPHER_STEMS.iter().any(numbered)
}

/// Beginnings of the kernel's functions, without underscores before them. The first that fits decides.
#[rustfmt::skip]
const KERNEL: [(&str, &[&str]); 6] = [
    ("network", &["enqueue_to_backlog", "skb_checksum_help", "raw_sendmsg", "raw_recvmsg", "raw_rcv", "raw_local", "raw_v4"]),
    ("copies", &["copy_to", "copy_from", "copy_user", "copy_page", "rep_movs", "memcpy", "memmove", "skb_copy", "raw_copy", "csum_and_copy",
        "csum_partial_copy", "clear_page", "skb_splice"]),
    ("checksum", &["csum", "do_csum", "skb_checksum", "ip_compute_csum", "ip_fast_csum"]),
    ("cipher", &["aes", "gcm", "ghash", "crypto_", "chacha", "poly1305", "sha1", "sha2", "sha5", "sha_", "md5", "des_", "des3", "cbc_", "ctr_", "hmac",
        "camellia", "blake2", "curve25519", "scatterwalk", "skcipher", "aead", "pcrypt", "padata", "kernel_fpu"]),
    ("scheduling", &["schedule", "sched_", "pick_", "enqueue_", "dequeue_", "try_to_wake", "ttwu", "wake_", "futex", "do_futex", "update_curr",
        "update_load", "update_rq", "switch_", "finish_task", "finish_wait", "prepare_to_wait", "put_prev", "set_next", "place_entity", "check_preempt",
        "wakeup_preempt", "resched", "autoremove_wake", "default_wake", "ep_", "do_epoll", "do_sys_poll", "do_poll", "poll_", "pollwake", "select_task",
        "hrtimer", "tick_", "do_nanosleep", "yield", "do_sched", "raw_spin_rq"]),
    ("network", &["ip_", "ip4_", "ip6_", "ipv6_", "ip_vs", "inet", "tcp_", "udp", "dev_", "netdev", "netif", "napi", "skb", "alloc_skb", "kfree_skb",
        "consume_skb", "build_skb", "sock", "net_", "neigh", "fib", "eth_", "packet_", "tpacket", "xsk", "xdp", "xp_", "qdisc", "sch_", "tbf_", "fq_", "pfifo",
        "nf_", "nft_", "veth", "tun_", "br_", "gro_", "process_backlog", "validate_xmit", "x64_sys_send", "x64_sys_recv", "sys_send", "sys_recv", "sendto",
        "send_", "recv", "do_recvmmsg", "xfrm", "esp", "ah_", "wg_", "dst_", "rt_", "route", "icmp", "loopback", "bpf_prog", "tc_", "tcf_", "cls_", "flow_",
        "sk_", "lock_sock", "release_sock", "page_frag", "get_rps", "rps_", "dql_", "enqueue_skb", "udpv6", "rtnl", "nlmsg", "vfs_writev", "arp_"]),
];

/// `None`: no kind of its own.
fn kernel(function: &str) -> Option<&'static str> {
    let name = function.trim_start_matches('_').trim_start_matches("pi_");
    let begins = |beginning: &&str| name.starts_with(*beginning);
    let found = KERNEL
        .iter()
        .find(|(_, beginnings)| beginnings.iter().any(begins));
    found.map(|(place, _)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_programs_are_classified_by_words_in_their_names() {
        let rows = [
            ("multibuffer::kernels::vaes::seal", "esplanade", "cipher"),
            ("aws_lc_0_35_0_aesni_gcm_encrypt", "esplanade", "cipher"),
            (
                "golang.org/x/crypto/chacha20poly1305.(*chacha20poly1305).Seal",
                "wireguard-go",
                "cipher",
            ),
            ("chacha20poly1305Seal.abi0", "wireguard-go", "cipher"),
            (
                "[unknown]",
                "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
                "cipher",
            ),
            ("dataplane::inbound::Describe::destroy", "esplanade", "own"),
            ("ipsec::wire::checksum::Sum::add", "esplanade", "checksum"),
            ("__memmove_avx512_unaligned_erms", "libc.so.6", "copies"),
            ("runtime.mallocgc", "wireguard-go", "own"),
        ];
        for (symbol, file, wanted) in rows {
            assert_eq!(own((symbol, file)), wanted, "{symbol}");
        }
    }

    #[test]
    fn an_unclassified_function_of_the_kernel_counts_as_its_caller() {
        let kind = |kernel: &[&'static str]| {
            work_kind(&Sample {
                kernel: kernel.to_vec(),
                ..Sample::default()
            })
        };
        assert_eq!(
            kind(&["rep_movs_alternative", "copyin", "tun_get_user"]),
            "copies"
        );
        assert_eq!(
            kind(&[
                "_raw_spin_unlock_irqrestore",
                "__wake_up_common_lock",
                "sock_def_readable"
            ]),
            "scheduling"
        );
        assert_eq!(kind(&["_raw_spin_lock", "__dev_queue_xmit"]), "network");
        assert_eq!(
            kind(&["kmem_cache_alloc_noprof", "__alloc_skb", "tcp_sendmsg"]),
            "network"
        );
        assert_eq!(
            kind(&["aes_gcm_enc_update_vaes_avx10", "gcm_crypt", "esp_output"]),
            "cipher"
        );
        assert_eq!(
            kind(&["csum_partial", "__skb_checksum", "tcp_v4_rcv"]),
            "checksum"
        );
        assert_eq!(
            kind(&["net_rx_action", "handle_softirqs", "_copy_to_iter"]),
            "network"
        );
        assert_eq!(kind(&["handle_softirqs", "_copy_to_iter"]), "kernel");
        assert_eq!(kind(&["entry_SYSCALL_64_after_hwframe"]), "kernel");
    }
}

//! The whole suite again with kernels switched off, level by level: the portable path, too, must pass every test.

use std::process::Command;

/// Documented in the crate's `detect` module.
const WITHOUT: &str = "MULTIBUFFER_WITHOUT";

#[test]
fn the_suite_passes_on_every_level_of_kernels() {
    if std::env::var_os(WITHOUT).is_some() {
        // This process runs one of the levels already, or the user has set one.
        return;
    }
    let suite = std::env::current_exe().expect("the path of this test");
    for off in [
        "all",
        "vaes,avx512,sha",
        "avx2,avx512,vaes",
        "avx512",
        "avx512,vclmul",
        "ifma",
        "clmul",
        "sha",
    ] {
        let run = Command::new(&suite)
            .env(WITHOUT, off)
            .arg("--quiet")
            .output()
            .expect("this test starts");
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "without {off}:\n{said}");
    }
}

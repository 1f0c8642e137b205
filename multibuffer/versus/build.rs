//! Compiles the two rivals that are C: OpenSSL's EVP and Intel's multi-buffer library, as Debian 12 ships them.

fn main() {
    println!("cargo:rerun-if-changed=src/rivals.c");
    cc::Build::new()
        .file("src/rivals.c")
        .opt_level(2)
        .warnings(true)
        .compile("rivals");
    println!("cargo:rustc-link-lib=dylib=crypto");
    println!("cargo:rustc-link-lib=dylib=IPSec_MB");
}

//! Has what is tried here built with the atomics of loom, but under Miri, which has its own.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    if std::env::var_os("CARGO_CFG_MIRI").is_none() {
        println!("cargo::rustc-cfg=loom");
    }
}

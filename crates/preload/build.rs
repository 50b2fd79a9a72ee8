//! Compiles the library with the C compiler that links Rust programs here, for `include_bytes!`.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=src/preload.c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("libpando_boost.so");
    if let Err(reason) = compile(&out) {
        println!("cargo::warning=pando boost will refuse to run: its library was not compiled: {reason}");
        std::fs::write(&out, []).expect("the build's own directory is writable");
    }
}

fn compile(out: &PathBuf) -> Result<(), String> {
    let compiler = cc::Build::new().opt_level(2).pic(true).try_get_compiler().map_err(|error| error.to_string())?;
    let mut command: Command = compiler.to_command();
    command
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-fexceptions", "-fvisibility=hidden"])
        // Symbols that only glibc has would end programs of musl: `__tls_get_addr` for thread-local
        // variables, and checked functions.
        .args(["-ftls-model=initial-exec", "-U_FORTIFY_SOURCE"])
        // Without debugging information, and in two segments: each program that starts pays for
        // them.
        .args(["-shared", "-g0", "-s", "-Wl,-O1,--as-needed,--hash-style=gnu,-z,noseparate-code"])
        .args(["src/preload.c", "-o"])
        .arg(out)
        .arg("-ldl");
    let output = command.output().map_err(|error| format!("{}: {error}", compiler.path().display()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).replace('\n', " "))
}

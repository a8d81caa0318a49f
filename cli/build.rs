// SPDX-License-Identifier: GPL-2.0
//! Compiles the BPF policy, whose object the program embeds, and makes the table of the
//! counters from the module's.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const SOURCES: [&str; 3] = [
    "../bpf/policy.bpf.c",
    "../bpf/policy.h",
    "../module/uapi/socksplice.h",
];

/// The module's table of counters: `X(name) /* help */`, once for each.
const COUNTERS: &str = "../module/core/stats.h";

/// The names and help texts of the counters, as the elements of a Rust array.
fn counters() -> String {
    let header = fs::read_to_string(COUNTERS).expect("the module's sources are beside these");
    let table = header
        .split_once("#define SOCKSPLICE_STATS(X)")
        .and_then(|(_, rest)| rest.split_once("\n\n"))
        .expect("the header has the table")
        .0;
    let entry = |text: &str| {
        let (name, rest) = text.split_once(')')?;
        let help = rest.split_once("/* ")?.1.split_once(" */")?.0;
        Some(format!("({name:?}, {help:?}),\n"))
    };
    table
        .split("\tX(")
        .skip(1)
        .map(|text| entry(text).unwrap_or_else(|| panic!("{COUNTERS}: no help text: {text}")))
        .collect()
}

/// The compiler's own system include directories. With `-target bpf` clang
/// forgets the one that holds `asm/types.h` on multiarch systems.
fn system_includes(clang: &str) -> Vec<String> {
    let output = Command::new(clang)
        .args(["-v", "-E", "-x", "c", "/dev/null", "-o", "/dev/null"])
        .output()
        .unwrap_or_else(|e| panic!("cannot run {clang}: {e}: install clang, or name one in CLANG"));
    String::from_utf8_lossy(&output.stderr)
        .lines()
        .skip_while(|line| !line.starts_with("#include <...>"))
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .map(|line| line.trim().to_string())
        .collect()
}

fn main() {
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
    }
    println!("cargo:rerun-if-changed={COUNTERS}");
    println!("cargo:rerun-if-env-changed=CLANG");

    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    fs::write(out.join("counters.rs"), format!("&[\n{}]\n", counters())).unwrap();
    let out = out.join("policy.bpf.o");
    // The headers of the libbpf that is linked in.
    let libbpf = env::var("DEP_BPF_INCLUDE").unwrap();

    let mut command = Command::new(&clang);
    command
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra",
        ])
        .args(["-Werror", "-Wno-unused-parameter", "-I", &libbpf]);
    for dir in system_includes(&clang) {
        command.args(["-idirafter", &dir]);
    }
    let status = command
        .args(["-c", SOURCES[0], "-o"])
        .arg(&out)
        .status()
        .expect("clang ran a moment ago");
    assert!(status.success(), "{clang} could not compile {}", SOURCES[0]);
}

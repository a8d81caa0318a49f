// SPDX-License-Identifier: GPL-2.0
use super::*;
use crate::error::{Error, USAGE};
use clap::CommandFactory;

#[test]
fn grammar_is_sound() {
    Cli::command().debug_assert();
    command().debug_assert();
}

#[test]
fn policy_set_takes_lists() {
    let cli = Cli::try_parse_from([
        "socksplice",
        "policy",
        "set",
        "--cgroup",
        "/a",
        "/b",
        "--cgroup",
        "c",
        "--port",
        "80,443-444",
        "--cidr",
        "10.0.0.0/8",
        "--ring",
        "64K",
        "--busy-poll",
        "50",
        "-j",
    ])
    .unwrap();
    assert!(cli.json);
    let Object::Policy(PolicyNoun {
        command: Some(PolicyCommand::Set(set)),
    }) = cli.object
    else {
        panic!();
    };
    assert_eq!(set.cgroups.len(), 3);
    assert_eq!(set.ports.len(), 2);
    assert_eq!(set.cidrs.len(), 1);
    assert_eq!(set.ring, Some(65536));
    assert_eq!(set.busy_poll, Some(50));
    assert!(!set.loopback_only);
}

#[test]
fn a_noun_needs_no_command() {
    for noun in ["policy", "pair", "splice", "stats", "feature"] {
        assert!(Cli::try_parse_from(["socksplice", noun, "-j"]).is_ok());
    }
}

#[test]
fn policies_are_added_by_name() {
    let parse = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
    assert!(parse(
        "socksplice policy add a --first --no-pair --unit x,y"
    ));
    assert!(parse("socksplice policy del a b") && parse("socksplice policy delete a"));
    for bad in ["add", "add a", "add a/b --cgroup /", "del", "check", "diff"] {
        assert!(!parse(&format!("socksplice policy {bad}")), "{bad}");
    }
}

#[test]
fn policies_name_containers() {
    let parse = |line: &str| Cli::try_parse_from(line.split(' '));
    let line = "socksplice policy set --container web,db --label a=b --label c= --pod x/y x?a=b";
    let Ok(Object::Policy(PolicyNoun {
        command: Some(PolicyCommand::Set(set)),
    })) = parse(line).map(|cli| cli.object)
    else {
        panic!();
    };
    assert_eq!(set.selectors.all().len(), 6);
    for bad in ["--container a/b", "--container", "--label a", "--pod a"] {
        assert!(
            parse(&format!("socksplice policy set {bad}")).is_err(),
            "{bad}"
        );
    }
    assert!(parse("socksplice policy add x --pod a/b").is_ok());
    assert!(parse("socksplice agent --listen [::1]:0").is_ok());
    assert!(parse("socksplice agent --listen 80").is_err());
}

#[test]
fn policy_clear_waits_only_for_pairs() {
    let parse = |arguments: &[&str]| {
        let head = ["socksplice", "policy", "clear"];
        Cli::try_parse_from(head.iter().chain(arguments)).is_ok()
    };
    assert!(parse(&[]) && parse(&["--unpair"]) && parse(&["--unpair", "--timeout", "3"]));
    assert!(!parse(&["--timeout", "3"]) && !parse(&["--unpair", "--timeout", "-1"]));
}

#[test]
fn pair_drop_takes_pairs_or_all() {
    let parse = |arguments: &[&str]| {
        let head = ["socksplice", "pair", "drop"];
        Cli::try_parse_from(head.iter().chain(arguments)).is_ok()
    };
    assert!(parse(&["3", "4"]) && parse(&["--all", "--timeout", "0"]));
    assert!(parse(&["--policy", "p"]) && parse(&["--port", "80", "--netns", "a"]));
    for bad in [
        &[][..],
        &["0"],
        &["3", "--all"],
        &["3", "--policy", "p"],
        &["--all", "--port", "80"],
        &["--policy", "a b"],
        &["x"],
        &["3", "--timeout", "-1"],
    ] {
        assert!(!parse(bad), "{bad:?}");
    }
}

#[test]
fn views_refuse_bad_values() {
    let parse = |line: &str| {
        let words = line.split(' ');
        Cli::try_parse_from(std::iter::once("socksplice").chain(words)).is_ok()
    };
    for good in [
        "pair show --port 80 443-444 --netns blue --pid 1 --process x --sort ring --limit 1",
        "pair top --batch -n 3 --sort messages --interval 1",
        "pair why 127.0.0.1:1 [::1]:2",
        "pair why --pid 1",
        "pair monitor --event paired ended -n 1 --buffer 4 --port 1",
        "exporter --listen [::1]:0 --user nobody",
        "capture -w - --port 80 --pair 1 2 --snaplen 0 --buffer 512K -n 1 --duration 1",
    ] {
        assert!(parse(good), "{good}");
    }
    for bad in [
        "pair show --limit 0",
        "pair show --limit +1",
        "pair show --sort size",
        "pair show --pid 0",
        "pair show --port 0",
        "pair top --interval 0",
        "pair top -n x",
        "pair why",
        "pair why 127.0.0.1:1",
        "pair why 127.0.0.1:1 127.0.0.1:0",
        "pair why 127.0.0.1:1 localhost:2",
        "pair why 127.0.0.1:1 127.0.0.1:2 127.0.0.1:3",
        "pair why 127.0.0.1:1 127.0.0.1:2 --pid 1",
        "pair why --pid 0",
        "pair monitor --event gone",
        "pair monitor --buffer 3",
        "pair monitor --pid 1",
        "capture",
        "capture -w x --snaplen 262145",
        "capture -w x --buffer 256K",
        "capture -w x --pair 0",
        "capture -w x -n 0",
        "capture -w x --duration 0",
        "exporter",
        "exporter --listen 9432",
        "exporter --listen localhost",
    ] {
        assert!(!parse(bad), "{bad}");
    }
}

#[test]
fn policy_set_refuses_bad_values() {
    for bad in [
        &["--port", "0"][..],
        &["--cidr", "10.0.0.1/8"],
        &["--ring", "3K"],
        &["--busy-poll", "1001"],
        &["--busy-poll", "-1"],
        &["--on-capture", "drop"],
        &["--cgroup"],
    ] {
        let arguments = ["socksplice", "policy", "set", "--cgroup", "/"];
        let arguments = arguments.iter().chain(bad);
        assert!(Cli::try_parse_from(arguments).is_err(), "{bad:?}");
    }
    assert!(Cli::try_parse_from(["socksplice", "policy", "set"]).is_err());
}

#[test]
fn usage_errors_are_one_line() {
    for arguments in [
        &["socksplice", "policy", "set"][..],
        &[
            "socksplice",
            "policy",
            "set",
            "--cgroup",
            "/",
            "--port",
            "x",
        ],
        &["socksplice"],
        &["socksplice", "nonsense"],
        &[
            "socksplice",
            "policy",
            "set",
            "--cgroup",
            "/",
            "--ring",
            "5000",
        ],
    ] {
        let error = Cli::try_parse_from(arguments).err().unwrap();
        let error = Error::from_clap(&error, &command_of(&arguments[1..]));
        assert_eq!(error.status, USAGE, "{arguments:?}");
        assert!(!error.to_string().contains('\n'), "{error}");
        assert!(!error.message.is_empty());
    }
}

#[test]
fn usage_errors_name_what_was_meant_and_the_help() {
    for (line, says) in [
        ("polcy", "did you mean policy? see 'socksplice --help'"),
        ("policy sett", "see 'socksplice policy --help'"),
        (
            "policy set --cgroup / --prt 80",
            "did you mean --port? see 'socksplice policy set --help'",
        ),
        (
            "policy set --cgroup / --port 0",
            "'0' for '--port <N|N-M>...': a port is a number from 1 to 65535, a range is FIRST-LAST; \
             see 'socksplice policy set --help'",
        ),
        (
            "policy add a --cgroup / --on-capture kep",
            "did you mean keep? see 'socksplice policy add --help'",
        ),
        ("policy delete", "see 'socksplice policy del --help'"),
        ("-j pair drop", "see 'socksplice pair drop --help'"),
        ("stats show -n 1", "--watch"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let all = std::iter::once(&"socksplice").chain(&words);
        let error = Cli::try_parse_from(all).err().unwrap();
        let shown = Error::from_clap(&error, &command_of(&words)).to_string();
        assert!(shown.contains(says), "{line}: {shown}");
    }
}

#[test]
fn colours_are_asked_for_anywhere() {
    for (line, when) in [
        ("pair show", ColorChoice::Auto),
        ("--color never pair show", ColorChoice::Never),
        ("pair show --color=always --nonsense", ColorChoice::Always),
        ("pair show --color blue", ColorChoice::Auto),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(color_of(&words), when, "{line}");
    }
}

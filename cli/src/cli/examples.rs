// SPDX-License-Identifier: GPL-2.0
//! Examples of each command, for its --help and its man page.

use clap::Command;

/// What an example does, and its line.
pub type Example = (&'static str, &'static str);

/// The examples of each command. A unit test parses every line.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "policy set",
        &[
            (
                "Every connection of this machine",
                "socksplice policy set --cgroup /",
            ),
            (
                "Redis and its clients, with readers that spin for 50 µs",
                "socksplice policy set --unit redis-server,app --port 6379 --busy-poll 50",
            ),
            (
                "All cgroups below two slices, with large rings",
                "socksplice policy set --cgroup 'web.slice/**' 'db.slice/**' --ring 256K",
            ),
        ],
    ),
    (
        "policy add",
        &[
            (
                "PostgreSQL, beside the policies in force",
                "socksplice policy add db --cgroup / --port 5432 --memory-cap 64M",
            ),
            (
                "Two containers by their names, beside the policies in force",
                "socksplice policy add web --container web,db",
            ),
            (
                "SSH stays on TCP, whatever the others say",
                "socksplice policy add ssh --first --no-pair --cgroup / --port 22",
            ),
        ],
    ),
    (
        "policy del",
        &[
            ("One policy", "socksplice policy del db"),
            ("Several, in one step", "socksplice policy del db ssh"),
        ],
    ),
    (
        "policy apply",
        &[
            (
                "The file that socksplice.service applies",
                "socksplice policy apply /etc/socksplice/policy.toml",
            ),
            (
                "What another machine has in force",
                "ssh node1 socksplice policy export | socksplice policy apply -",
            ),
        ],
    ),
    (
        "policy check",
        &[
            (
                "All mistakes of a file, each with its line",
                "socksplice policy check /etc/socksplice/policy.toml",
            ),
            (
                "For a script",
                "socksplice -j policy check policy.toml | jq .error.more",
            ),
        ],
    ),
    (
        "policy diff",
        &[
            (
                "What a reload of socksplice.service would change",
                "socksplice policy diff /etc/socksplice/policy.toml",
            ),
            (
                "A file from a pipe",
                "ssh node1 socksplice policy export | socksplice policy diff -",
            ),
        ],
    ),
    (
        "policy export",
        &[
            (
                "Keep what is in force for the next boot",
                "socksplice policy export > /etc/socksplice/policy.toml",
            ),
            ("Only look at it", "socksplice policy export | less"),
        ],
    ),
    (
        "policy show",
        &[
            ("All policies", "socksplice policy show"),
            (
                "The cgroups that do not exist yet",
                "socksplice -j policy show | jq '.policies[].cgroups[] | select(.waiting).path'",
            ),
        ],
    ),
    (
        "policy clear",
        &[
            ("No further connections", "socksplice policy clear"),
            (
                "And those that are paired go back to TCP",
                "socksplice policy clear --unpair --timeout 30",
            ),
        ],
    ),
    (
        "pair show",
        &[
            ("The pairs of a port", "socksplice pair show --port 6379"),
            (
                "The ten that have sent the most by ring, with all columns",
                "socksplice pair show --sort ring --limit 10 -w",
            ),
            (
                "Those of a container's network namespace",
                "socksplice pair show --netns blue",
            ),
        ],
    ),
    (
        "pair top",
        &[
            ("The busiest pairs, on the screen", "socksplice pair top"),
            (
                "Those of one service that send by TCP",
                "socksplice pair top --process nginx --sort tcp",
            ),
            (
                "Ten tables, a minute apart, to a file",
                "socksplice pair top --interval 60 -n 10 > top.txt",
            ),
        ],
    ),
    (
        "pair monitor",
        &[
            ("Every verdict", "socksplice pair monitor"),
            (
                "Why connections to a port stay on TCP",
                "socksplice pair monitor --event declined expired --port 5432",
            ),
        ],
    ),
    (
        "pair why",
        &[
            (
                "One connection",
                "socksplice pair why 127.0.0.1:40000 127.0.0.1:6379",
            ),
            (
                "All connections of a process",
                "socksplice pair why --pid 4711",
            ),
        ],
    ),
    (
        "pair drop",
        &[
            ("Two pairs, by their numbers", "socksplice pair drop 17 18"),
            ("The pairs of a policy", "socksplice pair drop --policy db"),
            (
                "All of them, without waiting for their readers",
                "socksplice pair drop --all --timeout 0",
            ),
        ],
    ),
    (
        "splice show",
        &[
            ("All splices", "socksplice splice show"),
            (
                "The bytes that they have moved",
                "socksplice -j splice show | jq '[.splices[].moved] | add'",
            ),
        ],
    ),
    (
        "poll set",
        &[
            (
                "The event loops of Redis",
                "socksplice poll set --unit redis-server --usec 50",
            ),
            (
                "Of all processes with a name",
                "socksplice poll set --process nginx --usec 20",
            ),
        ],
    ),
    (
        "poll clear",
        &[
            (
                "The event loops of Redis",
                "socksplice poll clear --unit redis-server",
            ),
            (
                "Of all processes below a cgroup",
                "socksplice poll clear --cgroup /system.slice",
            ),
        ],
    ),
    (
        "poll show",
        &[
            ("All of them", "socksplice poll show"),
            (
                "The processes that have one",
                "socksplice -j poll show | jq '.sets[].name'",
            ),
        ],
    ),
    (
        "drain",
        &[
            (
                "Unload the module under live connections",
                "socksplice policy clear && socksplice drain && modprobe -r socksplice",
            ),
            (
                "With a minute for readers that are slow",
                "socksplice drain --timeout 60",
            ),
        ],
    ),
    (
        "capture",
        &[
            (
                "What goes to and from Redis",
                "socksplice capture --port 6379 -w redis.pcapng",
            ),
            (
                "Live in Wireshark",
                "socksplice capture -w - | wireshark -k -i -",
            ),
            (
                "The first 64 bytes of each record, for ten seconds",
                "socksplice capture -w heads.pcapng --snaplen 64 --duration 10",
            ),
        ],
    ),
    (
        "stats show",
        &[
            ("The counters that are not 0", "socksplice stats show"),
            (
                "What changes, every two seconds",
                "socksplice stats show --watch 2",
            ),
        ],
    ),
    (
        "exporter",
        &[
            (
                "For a Prometheus on this machine",
                "socksplice exporter --listen 127.0.0.1:9432",
            ),
            (
                "On an address of a management network, as a user of its own",
                "socksplice exporter --listen '[fd00::1]:9432' --user prometheus",
            ),
        ],
    ),
    (
        "agent",
        &[
            (
                "Keep policies that name containers true",
                "socksplice agent",
            ),
            (
                "And serve metrics to a Prometheus on this machine",
                "socksplice agent --listen 127.0.0.1:9432",
            ),
        ],
    ),
    (
        "feature show",
        &[
            ("The module's state", "socksplice feature show"),
            (
                "Whether new connections are paired",
                "socksplice -j feature show | jq .module.pairing",
            ),
        ],
    ),
    (
        "feature set",
        &[
            (
                "Pair no further connections",
                "socksplice feature set pairing off",
            ),
            (
                "At most 512 MiB for all rings",
                "socksplice feature set memory-cap 512M",
            ),
            ("Accept SO_SPLICE", "socksplice feature set so-splice on"),
        ],
    ),
    (
        "doctor",
        &[
            ("Every check", "socksplice doctor"),
            (
                "What has failed, for a script",
                "socksplice -j doctor | jq '.checks[] | select(.status == \"fail\")'",
            ),
        ],
    ),
    (
        "completions",
        &[
            (
                "For the bash that runs now",
                "socksplice completions bash > /tmp/complete && source /tmp/complete",
            ),
            (
                "For every later fish",
                "socksplice completions fish > ~/.config/fish/completions/socksplice.fish",
            ),
        ],
    ),
];

/// The examples of a command, by its words without the program's name.
pub fn of(command: &str) -> &'static [Example] {
    let found = EXAMPLES.iter().find(|(name, _)| *name == command);
    found.map_or(&[], |(_, examples)| examples)
}

/// The command with the examples in its help and in that of the commands below it.
pub fn add(command: Command, words: &str) -> Command {
    let examples = of(words).iter();
    let text: Vec<String> = examples
        .map(|(what, line)| format!("  # {what}\n  {line}"))
        .collect();
    let command = match text.is_empty() {
        true => command,
        false => command.after_help(format!("Examples:\n{}", text.join("\n"))),
    };
    let below: Vec<String> = command
        .get_subcommands()
        .map(|c| c.get_name().into())
        .collect();
    below.iter().fold(command, |command, name| {
        let words = format!("{words} {name}");
        command.mut_subcommand(name, |below| add(below, words.trim_start()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a line in shell syntax, with its quotes.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut is_quoted = false;
        for c in line.chars() {
            match c {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }
        words
    }

    fn check(command: &Command, name: &str) {
        let mut below = command
            .get_subcommands()
            .filter(|c| !c.is_hide_set() && c.get_name() != "help")
            .peekable();
        if below.peek().is_some() {
            for command in below {
                check(
                    command,
                    format!("{name} {}", command.get_name()).trim_start(),
                );
            }
            return;
        }
        let help = command.clone().render_long_help().to_string();
        assert!(
            help.contains("\nExamples:\n"),
            "{name} --help has no example"
        );
        let examples = of(name);
        assert!((2..=3).contains(&examples.len()), "{name}");
        for (_, line) in examples {
            let mut is_of_command = false;
            for word in words(line).split(|word| ["|", "&&"].contains(&word.as_str())) {
                let end = word.iter().position(|word| word == ">");
                let words = &word[..end.unwrap_or(word.len())];
                if words.first().is_some_and(|word| word == "socksplice") {
                    if let Err(e) = super::super::command().try_get_matches_from(words) {
                        panic!("{line}: {e}");
                    }
                    is_of_command |=
                        super::super::command_of(words) == format!("socksplice {name}");
                }
            }
            assert!(is_of_command, "{line} is no example of {name}");
        }
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let mut command = super::super::command();
        command.build();
        check(&command, "");
    }

    #[test]
    fn every_example_is_of_a_command() {
        for (name, _) in EXAMPLES {
            let words: Vec<&str> = name.split(' ').collect();
            assert_eq!(
                super::super::command_of(&words),
                format!("socksplice {name}")
            );
        }
    }

    #[test]
    fn lines_fit_the_screen() {
        for (_, examples) in EXAMPLES {
            for (what, line) in *examples {
                assert!(line.len() <= 88 && what.len() <= 76, "{line}");
            }
        }
    }
}

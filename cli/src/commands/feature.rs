// SPDX-License-Identifier: GPL-2.0
//! `feature`: the module's state and its switches.

use std::io;

use serde_json::json;

use crate::cli::Feature;
use crate::error::{Error, Result};
use crate::kernel::module::{Module, Setting, Status};
use crate::output::{Answer, SCHEMA, on_off, yes_no};
use crate::uapi::{A_STATUS_MEMORY_CAP, A_STATUS_PAIRING, A_STATUS_SO_SPLICE, A_STATUS_SPLICE};
use crate::values::size;

pub fn show() -> Result<Answer> {
    Ok(answer(&Module::open()?.1))
}

pub fn set(feature: Feature, value: &str) -> Result<Answer> {
    let setting = setting(feature, value).map_err(Error::usage)?;
    let (module, _) = Module::open()?;
    module.set(&[setting])?;
    let status = module.status().map_err(|mut e| {
        e.message = format!("it is set, but {}", e.message);
        e
    })?;
    let Answer { json, .. } = answer(&status);
    Ok(Answer::new("", json))
}

fn setting(feature: Feature, value: &str) -> std::result::Result<(u16, Setting), String> {
    let attribute = match feature {
        Feature::Pairing => A_STATUS_PAIRING,
        Feature::Splice => A_STATUS_SPLICE,
        Feature::SoSplice => A_STATUS_SO_SPLICE,
        Feature::MemoryCap => {
            let bytes = size::parse_memory_or_off(value)?;
            return Ok((A_STATUS_MEMORY_CAP, Setting::Limit(bytes)));
        }
    };
    match value {
        "on" => Ok((attribute, Setting::Switch(true))),
        "off" => Ok((attribute, Setting::Switch(false))),
        _ => Err(format!("a switch is on or off, not '{value}'")),
    }
}

fn hook(error: &Option<io::Error>) -> String {
    match error {
        None => "installed".to_string(),
        Some(e) => format!("not installed: {e}"),
    }
}

fn splice(status: &Status) -> &'static str {
    if status.splice_native {
        "by the kernel itself"
    } else {
        on_off(status.splice)
    }
}

fn answer(status: &Status) -> Answer {
    let literal_error = (status.literal < 0).then(|| io::Error::from_raw_os_error(-status.literal));
    let literal = match status.literal {
        1 => "not used".to_string(),
        _ => hook(&literal_error),
    };
    let text = format!(
        "version:     {}\n\
         pairing:     {}\n\
         splice:      {}\n\
         so-splice:   {}\n\
         shadow:      {}\n\
         enroll_all:  {}\n\
         ring_size:   {}\n\
         memory-cap:  {}\n\
         bpf:         {}\n\
         sock_ops:    {}\n\
         splice_hook: {}\n\
         sol_socket:  {literal}\n",
        status.version,
        on_off(status.pairing),
        splice(status),
        on_off(status.so_splice),
        on_off(status.shadow),
        on_off(status.enroll_all),
        size::format(status.ring_size.into()),
        size::format_or_off(status.memory_cap),
        yes_no(status.btf),
        yes_no(status.sock_ops),
        hook(&status.hook_error),
    );
    let json = json!({
        "schema": SCHEMA,
        "module": {
            "version": status.version,
            "pairing": status.pairing,
            "splice": status.splice,
            "splice_native": status.splice_native,
            "so_splice": status.so_splice,
            "shadow": status.shadow,
            "enroll_all": status.enroll_all,
            "ring_size": status.ring_size,
            "memory_cap": (status.memory_cap != 0).then_some(status.memory_cap),
            "bpf": status.btf,
            "sock_ops": status.sock_ops,
            "splice_hook": {
                "installed": status.hook_error.is_none(),
                "error": status.hook_error.as_ref().map(|e| e.to_string()),
            },
            "sol_socket": {
                "installed": status.literal == 0,
                "error": literal_error.map(|e| e.to_string()),
            },
        },
    });
    Answer::new(text, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_why_there_is_no_hook() {
        let answer = answer(&Status {
            version: "0.1.0".into(),
            btf: true,
            sock_ops: false,
            hook_error: Some(std::io::Error::from_raw_os_error(16)),
            pairing: true,
            shadow: false,
            enroll_all: false,
            splice: false,
            splice_native: false,
            so_splice: true,
            literal: -16,
            ring_size: 65536,
            memory_cap: 1 << 30,
            events: true,
        });
        assert!(answer.text.contains("ring_size:   64K\n"));
        assert!(answer.text.contains("memory-cap:  1G\n"));
        assert!(answer.text.contains("not installed: "));
        let module = &answer.json["module"];
        assert_eq!(module["ring_size"], 65536);
        assert_eq!(module["splice_hook"]["installed"], false);
        assert_eq!(module["pairing"], true);
        assert!(answer.text.contains("sol_socket:  not installed: "));
        assert_eq!(module["sol_socket"]["installed"], false);
    }

    #[test]
    fn values_that_a_feature_takes() {
        let of = |feature, value| setting(feature, value).ok().map(|s| s.1);
        assert_eq!(of(Feature::Splice, "on"), Some(Setting::Switch(true)));
        assert_eq!(of(Feature::MemoryCap, "4M"), Some(Setting::Limit(4 << 20)));
        assert_eq!(of(Feature::MemoryCap, "off"), Some(Setting::Limit(0)));
        for (feature, bad) in [
            (Feature::Pairing, "4M"),
            (Feature::Pairing, "ON"),
            (Feature::MemoryCap, "on"),
            (Feature::MemoryCap, "0"),
            (Feature::MemoryCap, "4K"),
        ] {
            assert_eq!(of(feature, bad), None, "{bad}");
        }
    }
}

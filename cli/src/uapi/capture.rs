// SPDX-License-Identifier: GPL-2.0
//! The limits of `module/uapi/capture.h`. A test compares them with it.

pub const SNAPLEN_MAX: u32 = 1 << 18;
pub const BUFFER_MIN: u32 = 1 << 19;
pub const BUFFER_MAX: u32 = 1 << 30;
pub const FILTERS: usize = 64;

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const HEADER: &str = include_str!("../../../module/uapi/capture.h");

    pub fn defined(name: &str) -> &'static str {
        let line = HEADER
            .lines()
            .find(|line| line.starts_with(&format!("#define {name}\t")))
            .unwrap();
        line.split('\t').rfind(|word| !word.is_empty()).unwrap()
    }

    #[test]
    fn limits_are_those_of_the_header() {
        assert_eq!(defined("SOCKSPLICE_CAPTURE_SNAPLEN_MAX"), "(1U << 18)");
        assert_eq!(SNAPLEN_MAX, 1 << 18);
        assert_eq!(defined("SOCKSPLICE_CAPTURE_BUFFER_MIN"), "(1U << 19)");
        assert_eq!(BUFFER_MIN, 1 << 19);
        assert_eq!(defined("SOCKSPLICE_CAPTURE_BUFFER_MAX"), "(1U << 30)");
        assert_eq!(BUFFER_MAX, 1 << 30);
        assert_eq!(defined("SOCKSPLICE_CAPTURE_FILTERS"), FILTERS.to_string());
    }
}

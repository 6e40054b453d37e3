#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spur_fuzz::options(bytes));

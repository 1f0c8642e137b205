//! Any bytes as what the kernel says of rules, routes, links, addresses and neighbours.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway::routes::netlink::fuzz_body::answers(data));

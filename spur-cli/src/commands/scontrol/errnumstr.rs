//! The command `scontrol errnumstr`: texts of the error numbers of Slurm and of the system.

/// Errors that commands and the controller report, and others that programs often request.
const WORDS: [(i32, &str); 66] = [
    (1001, "Communication connection failure"),
    (1005, "Incompatible versions of client and server code"),
    (1007, "Protocol authentication error"),
    (1800, "Unable to contact slurm controller (connect failure)"),
    (1801, "Unable to contact slurm controller (send failure)"),
    (1802, "Unable to contact slurm controller (receive failure)"),
    (1803, "Unable to contact slurm controller (shutdown failure)"),
    (2000, "Invalid partition name specified"),
    (2001, "No partition specified or system default partition"),
    (2002, "Access/permission denied"),
    (2003, "User's group not permitted to use this partition"),
    (2004, "Requested nodes not in this partition"),
    (2005, "More processors requested than permitted"),
    (2006, "Node count specification invalid"),
    (2010, "Invalid user id"),
    (2014, "Requested node configuration is not available"),
    (2015, "Requested partition configuration not available now"),
    (2016, "Requested nodes are busy"),
    (2017, "Invalid job id specified"),
    (2018, "Invalid node name specified"),
    (2021, "Job/step already completing or completed"),
    (2023, "Task distribution specification invalid"),
    (2024, "Job is pending execution"),
    (2025, "Task count specification invalid"),
    (2028, "Invalid node state specified"),
    (2029, "Invalid feature specification"),
    (2035, "Immediate execution impossible, resources too fragmented for allocation"),
    (2036, "Requested operation not supported on this system"),
    (2037, "Requested operation is presently disabled"),
    (2038, "Job dependency problem"),
    (2039, "Only batch jobs are accepted or processed"),
    (2041, "Requested more tasks than available processors"),
    (2042, "Job is in held state, pending scheduler release"),
    (2044, "Memory required by task is not available"),
    (2045, "Invalid account or account/partition combination specified"),
    (2048, "Invalid license specification"),
    (2050, "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"),
    (2051, "Requested time limit is invalid (missing or exceeds some limit)"),
    (2052, "Access denied to requested reservation"),
    (2053, "Requested reservation is invalid"),
    (2054, "Invalid time specified"),
    (2055, "Requested reservation is in use"),
    (2057, "Invalid wckey specification"),
    (2058, "Requested reservation overlaps with another reservation"),
    (2066, "Invalid qos specification"),
    (2068, "Required node not available (down, drained or reserved)"),
    (2069, "CPU count specification invalid"),
    (2070, "Required partition not available (inactive or drain)"),
    (2071, "Circular job dependency"),
    (2072, "Invalid generic resource (gres) specification"),
    (2073, "Job is no longer pending execution"),
    (2075, "Partition is in use"),
    (2077, "Job is current suspended, requested operation disabled"),
    (2078, "Job can not start immediately"),
    (2081, "Invalid job array specification"),
    (2083, "Job has already started"),
    (2084, "Job has already finished"),
    (2085, "Job is not running"),
    (2086, "Job is not pending nor running"),
    (2087, "Job is not suspended"),
    (2101, "Partition in DOWN state"),
    (2104, "Reservation already started"),
    (2107, "Job not heterogeneous job leader"),
    (2108, "Operation not permitted on individual component of heterogeneous job"),
    (2112, "X11 forwarding not available"),
    (2123, "Invalid --nice value"),
];

/// Returns the text of an error number.
pub(super) fn words(number: i32) -> String {
    match WORDS.binary_search_by_key(&number, |(number, _)| *number) {
        Ok(at) => WORDS[at].1.to_owned(),
        // The system's text ends with the number, which the caller knows.
        Err(_) => {
            let text = std::io::Error::from_raw_os_error(number).to_string();
            text.split(" (os error ").next().unwrap_or_default().to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_words() {
        assert!(WORDS.is_sorted());
        assert_eq!(words(2017), "Invalid job id specified");
        assert_eq!(words(2), "No such file or directory");
        assert_eq!(words(99_999), "Unknown error 99999");
    }
}

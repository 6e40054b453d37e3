//! Devices that are allocated one by one, each with the file through which it is used.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use spur_core::model::config::DeviceFiles;

use crate::step::order::DeviceNumber;

/// Who made a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vendor {
    /// AMD: `ROCR_VISIBLE_DEVICES`.
    Amd,
    /// NVIDIA: `CUDA_VISIBLE_DEVICES`.
    Nvidia,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What it is, as `--gres=NAME` asks for it: `gpu`.
    pub name: String,
    /// Its type, as `--gres=gpu:TYPE` names it: `mi300x`, `h100`; empty: none.
    pub kind: String,
    /// Who made it, if it is a GPU of one of these.
    pub vendor: Option<Vendor>,
    /// The number by which the vendor's library counts it; of others its place among those of its name.
    pub index: u32,
    /// The file through which a process uses it.
    pub file: PathBuf,
}

impl Device {
    /// The devices of a node that `[[gres]]` names, with what is wrong with those that are not counted.
    pub fn declared(entries: &[DeviceFiles], node: &str) -> (Vec<Device>, Vec<String>) {
        let (mut devices, mut wrong) = (Vec::new(), Vec::new());
        let mut counts = BTreeMap::<(&str, Option<Vendor>), u32>::new();
        for entry in entries.iter().filter(|entry| entry.are_of(node)) {
            for file in &entry.files {
                let vendor = vendor(file).filter(|_| entry.name == "gpu");
                let count = counts.entry((&entry.name, vendor)).or_default();
                let index = std::mem::replace(count, *count + 1);
                let device = Device {
                    name: entry.name.clone(),
                    kind: entry.kind.clone(),
                    vendor,
                    index,
                    file: file.clone(),
                };
                match device.number() {
                    Ok(_) => devices.push(device),
                    Err(why) => wrong.push(why),
                }
            }
        }
        (devices, wrong)
    }

    /// The kernel's number of its file.
    ///
    /// # Errors
    /// The file is not there, or is no device; for people.
    pub fn number(&self) -> Result<DeviceNumber, String> {
        let what = || format!("{} of [[gres]] name = \"{}\"", self.file.display(), self.name);
        let found = std::fs::metadata(&self.file).map_err(|error| format!("{}: {error}", what()))?;
        let block = found.file_type().is_block_device();
        if !block && !found.file_type().is_char_device() {
            return Err(format!("{} is no device", what()));
        }
        let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
        Ok(DeviceNumber { block, major, minor })
    }
}

/// Who made a GPU that is used through such a file.
fn vendor(file: &Path) -> Option<Vendor> {
    let name = file.file_name()?.to_str()?;
    let numbered = |prefix| super::numbered(name, prefix).is_some();
    match () {
        () if numbered("nvidia") => Some(Vendor::Nvidia),
        () if numbered("renderD") => Some(Vendor::Amd),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_devices_are_those_of_the_node_that_are_devices() {
        let entry = |nodes: Option<&str>, name: &str, files: &[&str]| DeviceFiles {
            nodes: nodes.map(|nodes| nodes.parse().unwrap()),
            name: name.to_owned(),
            kind: "x".to_owned(),
            files: files.iter().map(PathBuf::from).collect(),
        };
        let entries = [
            entry(Some("n[1-2]"), "gpu", &["/dev/null", "/dev/none-such", "/dev/zero"]),
            entry(Some("n3"), "gpu", &["/dev/full"]),
            entry(None, "nic", &["/dev/urandom", "/dev"]),
        ];
        let (devices, wrong) = Device::declared(&entries, "n2");
        let found: Vec<_> = devices
            .iter()
            .map(|device| (device.name.as_str(), device.index, device.file.to_str().unwrap()))
            .collect();
        assert_eq!(found, [("gpu", 0, "/dev/null"), ("gpu", 2, "/dev/zero"), ("nic", 0, "/dev/urandom")]);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert_eq!(devices[1].number(), Ok(DeviceNumber { block: false, major: 1, minor: 5 }));
        assert_eq!(
            (vendor(Path::new("/dev/nvidia3")), vendor(Path::new("/dev/nvidiactl"))),
            (Some(Vendor::Nvidia), None)
        );
        assert_eq!(vendor(Path::new("/dev/dri/renderD129")), Some(Vendor::Amd));
    }
}

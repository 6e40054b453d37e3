//! Devices that are allocated one by one, each with the files through which processes use it.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use spur_core::model::config::DeviceFiles;
use spur_core::model::idset::IdSet;
use spur_core::model::node::DevicePlace;
use step_wire::order::DeviceNumber;

/// The maker of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vendor {
    /// AMD, whose libraries read `ROCR_VISIBLE_DEVICES`.
    Amd,
    /// NVIDIA, whose libraries read `CUDA_VISIBLE_DEVICES`.
    Nvidia,
}

/// One device of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name of the resource, as `--gres=NAME` asks for it: `gpu`.
    pub name: String,
    /// Type, as `--gres=gpu:TYPE` names it: `mi300x`, `h100`; empty without a type.
    pub kind: String,
    /// The maker, if the device is a GPU of a known one.
    pub vendor: Option<Vendor>,
    /// The number by which the vendor's library counts the device; without a vendor, the position among those
    /// of its name.
    pub index: u32,
    /// CUDA's name of a MIG instance, for which CUDA has no number; empty for other devices.
    pub called: String,
    /// The files through which a process uses the device. MIG instances share the file of their GPU.
    pub files: Vec<PathBuf>,
    /// The node's cores near the device, numbered socket by socket; empty if no cores are nearer than others.
    pub cores: IdSet,
    /// Number of links to each device of the same name, in their order; empty if unknown.
    pub links: Vec<u32>,
}

impl Device {
    /// Returns the devices that `[[gres]]` declares for a node, and messages about entries that are not
    /// counted.
    pub fn declared(entries: &[DeviceFiles], node: &str) -> (Vec<Device>, Vec<String>) {
        let (mut devices, mut wrong) = (Vec::new(), Vec::new());
        let mut counts = BTreeMap::<(&str, Option<Vendor>), u32>::new();
        let mut places = BTreeMap::<&str, usize>::new();
        for entry in entries.iter().filter(|entry| entry.are_of(node)) {
            for files in &entry.files {
                let vendor = files.iter().find_map(|file| vendor(file)).filter(|_| entry.name == "gpu");
                let count = counts.entry((&entry.name, vendor)).or_default();
                let index = std::mem::replace(count, *count + 1);
                let place = places.entry(&entry.name).or_default();
                let links = links_at(entry, *place).unwrap_or_else(|why| {
                    wrong.push(why);
                    Vec::new()
                });
                *place += 1;
                let device = Device {
                    name: entry.name.clone(),
                    kind: entry.kind.clone(),
                    vendor,
                    index,
                    called: String::new(),
                    files: files.clone(),
                    cores: entry.cores.clone(),
                    links,
                };
                match device.numbers() {
                    Ok(_) => devices.push(device),
                    Err(why) => wrong.push(why),
                }
            }
        }
        (devices, wrong)
    }

    /// Returns the kernel's device numbers of the device's files.
    ///
    /// # Errors
    /// Names a file that does not exist or is not a device, for users.
    pub fn numbers(&self) -> Result<Vec<DeviceNumber>, String> {
        self.files.iter().map(|file| self.number(file)).collect()
    }

    fn number(&self, file: &Path) -> Result<DeviceNumber, String> {
        let what = || format!("{} of [[gres]] name = \"{}\"", file.display(), self.name);
        let found = std::fs::metadata(file).map_err(|error| format!("{}: {error}", what()))?;
        let block = found.file_type().is_block_device();
        if !block && !found.file_type().is_char_device() {
            return Err(format!("{} is no device", what()));
        }
        let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
        Ok(DeviceNumber { block, major, minor })
    }
}

/// Returns the links of the device that is the `place`th of its name on the node.
fn links_at(entry: &DeviceFiles, place: usize) -> Result<Vec<u32>, String> {
    match entry.links.iter().position(Option::is_none) {
        Some(own) if own != place => Err(format!(
            "links of {}: -1 is in place {own}, but the device is number {place} of its name on this node",
            entry.files.iter().flatten().next().map_or("no file".into(), |file| file.display().to_string())
        )),
        _ => Ok(entry.links.iter().map(|link| link.unwrap_or(0)).collect()),
    }
}

/// Returns the locality of all devices whose name has at least one device with known cores or links.
pub fn places(devices: &[Device]) -> Vec<DevicePlace> {
    let is_known = |name: &str| {
        let mut same = devices.iter().filter(|device| device.name == name);
        same.any(|device| !device.cores.is_empty() || !device.links.is_empty())
    };
    let place = |device: &Device| DevicePlace {
        name: device.name.as_str().into(),
        kind: device.kind.as_str().into(),
        cores: device.cores.clone(),
        links: device.links.clone(),
    };
    devices.iter().filter(|device| is_known(&device.name)).map(place).collect()
}

/// Returns the maker of a GPU by the name of its file; `None` for any other file.
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
            files: files.iter().map(|file| file.split('+').map(PathBuf::from).collect()).collect(),
            cores: IdSet::default(),
            shards: 0,
            links: Vec::new(),
        };
        let entries = [
            entry(Some("n[1-2]"), "gpu", &["/dev/null", "/dev/none-such", "/dev/zero"]),
            entry(Some("n3"), "gpu", &["/dev/full"]),
            entry(None, "nic", &["/dev/urandom+/dev/random", "/dev", "/dev/random+/dev/none-such"]),
        ];
        let (devices, wrong) = Device::declared(&entries, "n2");
        let found: Vec<_> = devices
            .iter()
            .map(|device| (device.name.as_str(), device.index, device.files[0].to_str().unwrap()))
            .collect();
        assert_eq!(found, [("gpu", 0, "/dev/null"), ("gpu", 2, "/dev/zero"), ("nic", 0, "/dev/urandom")]);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        let number = |minor| DeviceNumber { block: false, major: 1, minor };
        assert_eq!(devices[1].numbers(), Ok(vec![number(5)]));
        assert_eq!(devices[2].numbers(), Ok(vec![number(9), number(8)]), "one device of two files");
        assert_eq!(
            (vendor(Path::new("/dev/nvidia3")), vendor(Path::new("/dev/nvidiactl"))),
            (Some(Vendor::Nvidia), None)
        );
        assert_eq!(vendor(Path::new("/dev/dri/renderD129")), Some(Vendor::Amd));
    }

    #[test]
    fn declared_devices_lie_where_they_are_said_to() {
        let entry = |name: &str, file: &str, cores: &str, links: &[i64]| DeviceFiles {
            nodes: None,
            name: name.to_owned(),
            kind: String::new(),
            files: vec![vec![file.into()]],
            cores: if cores.is_empty() { IdSet::default() } else { cores.parse().unwrap() },
            shards: 0,
            links: links.iter().map(|&link| u32::try_from(link).ok()).collect(),
        };
        let entries = [
            entry("gpu", "/dev/null", "0-3", &[-1, 4]),
            entry("gpu", "/dev/zero", "", &[4, -1]),
            entry("nic", "/dev/full", "", &[]),
            entry("gpu", "/dev/random", "4-7", &[-1, 0, 0]),
        ];
        let (devices, wrong) = Device::declared(&entries, "n1");
        let lie: Vec<_> = places(&devices)
            .into_iter()
            .map(|place| (place.name.to_string(), place.cores.to_string(), place.links))
            .collect();
        let gpu = |cores: &str, links: &[u32]| ("gpu".to_owned(), cores.to_owned(), links.to_vec());
        assert_eq!(lie, [gpu("0-3", &[0, 4]), gpu("", &[4, 0]), gpu("4-7", &[])]);
        let said =
            "links of /dev/random: -1 is in place 0, but the device is number 2 of its name on this node";
        assert_eq!(wrong, [said]);
    }
}

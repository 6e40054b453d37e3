//! Output of `ibnetdiscover`: blocks of switches, adapters and routers, with one line per link.
//!
//! A link is in the blocks of both its ends and counts once. An end without a block is known from the link's
//! line, which also has its description.

use std::collections::{BTreeMap, BTreeSet};

/// Prefixes of lines without information about the shape of a fabric.
const PASSED_OVER: [&str; 7] =
    ["vendid=", "devid=", "switchguid=", "caguid=", "rtguid=", "Chassis", "Non-Chassis"];

/// A fabric as reported by `ibnetdiscover`.
#[derive(Debug, Default)]
pub(super) struct Fabric {
    /// Devices in the order in which the file first names them.
    pub(super) devices: Vec<Device>,
    /// Links, each once.
    pub(super) links: Vec<[End; 2]>,
    /// Sentences about lines that could not be parsed.
    pub(super) problems: Vec<String>,
}

/// A switch, an adapter or a router.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) kind: Kind,
    pub(super) guid: u64,
    /// GUID that all parts of one system share; `None` if the file does not have it.
    pub(super) system: Option<u64>,
    /// `NodeDescription`, with single spaces between words.
    pub(super) description: String,
}

/// Kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Switch,
    Adapter,
    Router,
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    /// Index of the device.
    pub(super) device: usize,
    pub(super) port: u32,
}

/// Parses the output of `ibnetdiscover`.
///
/// # Errors
/// A text without a block of a switch.
pub(super) fn read(text: &str) -> Result<Fabric, String> {
    let mut reading = Reading::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() {
            reading.system = None;
        } else if !line.starts_with('#') && reading.line(line).is_none() {
            reading.fabric.problems.push(format!("line {number} is not understood: {line}"));
        }
    }
    if !reading.fabric.devices.iter().any(|device| device.kind == Kind::Switch) {
        return Err(
            "no line of it is one of a switch, as ibnetdiscover prints them: Switch 36 \"S-0002c9…\" # \"…\""
                .to_owned(),
        );
    }
    Ok(reading.fabric)
}

#[derive(Default)]
struct Reading {
    fabric: Fabric,
    numbers: BTreeMap<(Kind, u64), usize>,
    known: BTreeSet<[End; 2]>,
    /// `sysimgguid` of the block that begins.
    system: Option<u64>,
    /// Device of the present block, whose links follow.
    block: Option<usize>,
}

impl Reading {
    /// Parses one line; `None` if it cannot be parsed.
    fn line(&mut self, line: &str) -> Option<()> {
        if let Some(guid) = line.strip_prefix("sysimgguid=") {
            self.system = Some(guid_of(guid.trim_start_matches("0x"))?).filter(|guid| *guid != 0);
            return Some(());
        }
        if PASSED_OVER.iter().any(|start| line.starts_with(start)) {
            return Some(());
        }
        if line.starts_with('[') {
            return self.link(line);
        }
        let is_header = ["Switch", "Ca", "Rt"].contains(&line.split_whitespace().next()?);
        let (id, rest) = quoted(line).filter(|_| is_header)?;
        let device = self.device(id, description(rest))?;
        self.fabric.devices[device].system = self.system.take();
        self.block = Some(device);
        Some(())
    }

    fn link(&mut self, line: &str) -> Option<()> {
        let (id, rest) = quoted(line)?;
        let from = End { device: self.block?, port: port(line)? };
        let to = End { port: port(rest)?, device: self.device(id, description(rest))? };
        let link = [from.min(to), from.max(to)];
        if self.known.insert(link) {
            self.fabric.links.push([from, to]);
        }
        Some(())
    }

    /// Returns the index of the device with an id such as `S-0002c90000000001`, and adds a new device. `None`
    /// for an invalid id.
    fn device(&mut self, id: &str, description: String) -> Option<usize> {
        let (kind, guid) = id.split_once('-')?;
        let kind = match kind {
            "S" => Kind::Switch,
            "H" => Kind::Adapter,
            "R" => Kind::Router,
            _ => return None,
        };
        let guid = guid_of(guid)?;
        let devices = &mut self.fabric.devices;
        Some(*self.numbers.entry((kind, guid)).or_insert_with(|| {
            devices.push(Device { kind, guid, system: None, description });
            devices.len() - 1
        }))
    }
}

fn guid_of(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Returns the text in the first pair of quotation marks, and the text after it; `None` without such a pair.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once('"')?;
    rest.split_once('"')
}

/// Returns the number in brackets at the beginning of a text; `None` without one.
fn port(text: &str) -> Option<u32> {
    text.strip_prefix('[')?.split_once(']')?.0.parse().ok()
}

/// Returns the quoted text after `#`; empty if there is none.
fn description(text: &str) -> String {
    let comment = text.split_once('#').map_or("", |(_, comment)| comment);
    let inside = comment.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
    inside.map_or("", |(inside, _)| inside).split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Fabric {
    /// Returns a unique name for each switch; `None` for other devices.
    pub(super) fn switch_names(&self) -> Vec<Option<String>> {
        let is_switch = |device: &&Device| device.kind == Kind::Switch;
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        for device in self.devices.iter().filter(is_switch) {
            *uses.entry(plain_name(device)).or_default() += 1;
        }
        let mut taken = BTreeSet::new();
        let name = |device: &Device| {
            if !is_switch(&device) {
                return None;
            }
            let plain = plain_name(device);
            let name = if uses[&plain] > 1 { format!("{plain}{}", place_in_box(device)) } else { plain };
            let name = if taken.contains(&name) { format!("{name}-{:016x}", device.guid) } else { name };
            taken.insert(name.clone());
            Some(name)
        };
        self.devices.iter().map(name).collect()
    }
}

/// Returns `NAME` of `MF0;NAME:MODEL/U1`, a description of a single word, or the GUID.
fn plain_name(device: &Device) -> String {
    let description = &device.description;
    let managed = description.split_once(';').map(|(_, rest)| rest.split(':').next().unwrap_or(rest));
    match managed.unwrap_or(description) {
        name if name.is_empty() || name.contains(' ') => format!("switch-{:016x}", device.guid),
        name => name.to_owned(),
    }
}

/// Returns `-L01-U1` of `MF0;NAME:MODEL/L01/U1`: the position of a chip in a switch with several chips.
fn place_in_box(device: &Device) -> String {
    let place = device.description.split_once(':').and_then(|(_, rest)| rest.split_once('/'));
    place.map_or_else(String::new, |(_, place)| format!("-{}", place.replace('/', "-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
#
# Topology file: generated on Tue Jun  5 14:15:10 2007

Non-Chassis Nodes

vendid=0x2c9
devid=0xcf08
sysimgguid=0x2c90000000001
switchguid=0x2c90000000001(2c90000000001)
Switch	36 "S-0002c90000000001"		# "MF0;sw01:CS7500/L01/U1" enhanced port 0 lid 73 lmc 0
[1]	"H-0002c90000000010"[1](2c90000000011) 		# "n1 mlx5_0" lid 647 4xNDR
[2][ext 5]	"H-0002c90000000020"[2](2c90000000021) 		# "MT4129 ConnectX7   Mellanox Technologies" lid 6 4xNDR
[35]	"S-0002c90000000002"[1]		# "MF0;sw01:CS7500/S01/U1" lid 2 4xNDR
[36]	"S-0002c90000000003"[1]		# "Infiniscale-IV Mellanox Technologies" lid 2 4xNDR

vendid=0x2c9
sysimgguid=0x2c90000000013
caguid=0x2c90000000010
Ca	1 "H-0002c90000000010"		# "n1 mlx5_0"
[1](2c90000000011) 	"S-0002c90000000001"[1]		# lid 647 lmc 0 "MF0;sw01:CS7500/L01/U1" lid 73 4xNDR

what is this
"#;

    #[test]
    fn links_of_both_ends_count_once() {
        let fabric = read(TEXT).unwrap();
        assert_eq!(fabric.devices.len(), 5);
        assert_eq!(fabric.links.len(), 4);
        assert_eq!(fabric.devices[1].system, Some(0x0002_c900_0000_0013));
        assert_eq!(fabric.devices[2].description, "MT4129 ConnectX7 Mellanox Technologies");
        assert_eq!(fabric.links[1][1], End { device: 2, port: 2 });
        assert_eq!(fabric.problems, ["line 23 is not understood: what is this"]);
        let names = fabric.switch_names();
        let names: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
        assert_eq!(names, ["sw01-L01-U1", "sw01-S01-U1", "switch-0002c90000000003"]);
    }

    #[test]
    fn what_is_no_fabric_is_refused() {
        for text in ["", "# nothing\n", "SwitchName=s0 Nodes=n[1-4]\n", "[1] \"H-1\"[1]\n"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}

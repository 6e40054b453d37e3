//! GPUs of AMD and NVIDIA, as their drivers show them.
//!
//! AMD GPUs come from the compute driver's topology (`/sys/class/kfd`), in whose order ROCm counts them.
//! NVIDIA GPUs come from `/proc/driver/nvidia`, in the order of their bus addresses: CUDA's order with
//! `CUDA_DEVICE_ORDER=PCI_BUS_ID`. A GPU that MIG divides is replaced by its instances. A GPU without a
//! driver cannot be used and is not counted.

use std::path::PathBuf;

use spur_core::model::idset::IdSet;

use super::Kernel;
use super::cpu::Cpus;
use super::device::{Device, Vendor};

/// PCI device numbers of AMD's compute GPUs and their types.
const AMD_TYPES: [(u32, &str); 19] = [
    (0x66a0, "mi50"),
    (0x66a1, "mi50"),
    (0x738c, "mi100"),
    (0x738e, "mi100"),
    (0x740f, "mi210"),
    (0x7408, "mi250x"),
    (0x740c, "mi250"),
    (0x74a0, "mi300a"),
    (0x74a1, "mi300x"),
    (0x74a2, "mi308x"),
    (0x74a5, "mi325x"),
    (0x74a8, "mi308x"),
    (0x74a9, "mi300x"),
    (0x74b5, "mi300x"),
    (0x74b6, "mi308x"),
    (0x74b9, "mi325x"),
    (0x74bd, "mi300x"),
    (0x75a0, "mi350x"),
    (0x75a3, "mi355x"),
];

/// The compute driver's type of an xGMI link (`CRAT_IOLINK_TYPE_XGMI` in the kernel's `kfd_crat.h`).
const XGMI: u32 = 11;

impl Kernel {
    /// Returns the GPUs that jobs can use, AMD's first.
    pub fn gpus(&self, cpus: &Cpus) -> Vec<Device> {
        let mut gpus = self.amd(cpus);
        gpus.extend(self.nvidia(cpus));
        gpus
    }

    /// Returns the node's cores near a device, according to the kernel; empty if the kernel names all CPUs or
    /// none.
    fn near(&self, device: &str, cpus: &Cpus) -> IdSet {
        let list = self.line(format!("{device}/local_cpulist"));
        let local = list.and_then(|list| list.parse::<IdSet>().ok()).unwrap_or_default();
        let numbered = cpus.threads.iter().zip(0_u32..);
        let near = numbered.filter(|(cpu, _)| local.contains(**cpu)).map(|(_, own)| own);
        let near: Vec<u32> = near.collect();
        if near.len() == cpus.threads.len() {
            return IdSet::default();
        }
        near.into_iter().map(|own| own / cpus.threads_per_core.max(1)).collect()
    }

    /// Returns the number of xGMI links from one node of AMD's topology to each node of `to`; empty if there
    /// are none.
    fn xgmi(&self, from: u32, to: &[u32]) -> Vec<u32> {
        let base = format!("sys/class/kfd/kfd/topology/nodes/{from}/io_links");
        let mut links = vec![0; to.len()];
        for name in self.names(&base) {
            let text = self.text(format!("{base}/{name}/properties")).unwrap_or_default();
            let is_xgmi = number(&text, "type") == Some(XGMI);
            let at = number(&text, "node_to").and_then(|node| to.iter().position(|other| *other == node));
            if let Some(at) = at.filter(|_| is_xgmi) {
                links[at] += 1;
            }
        }
        if links.iter().all(|link| *link == 0) { Vec::new() } else { links }
    }

    fn amd(&self, cpus: &Cpus) -> Vec<Device> {
        let base = "sys/class/kfd/kfd/topology/nodes";
        let mut nodes: Vec<u32> = self.names(base).iter().filter_map(|name| name.parse().ok()).collect();
        nodes.sort_unstable();
        let described = nodes.into_iter().filter_map(|node| {
            // A node of the topology without a GPU number is a CPU.
            self.line(format!("{base}/{node}/gpu_id")).filter(|id| id != "0" && !id.is_empty())?;
            let properties = self.text(format!("{base}/{node}/properties"))?;
            let minor = number(&properties, "drm_render_minor").filter(|&minor| minor > 0)?;
            Some((node, amd_type(number(&properties, "device_id").unwrap_or(0)), minor))
        });
        let described: Vec<(u32, String, u32)> = described.collect();
        let all: Vec<u32> = described.iter().map(|(node, ..)| *node).collect();
        let numbered = described.into_iter().zip(0..);
        let one = |((node, kind, minor), index)| Device {
            cores: self.near(&format!("sys/class/drm/renderD{minor}/device"), cpus),
            links: self.xgmi(node, &all),
            ..gpu(Vendor::Amd, kind, index, format!("/dev/dri/renderD{minor}").into())
        };
        numbered.map(one).collect()
    }

    fn nvidia(&self, cpus: &Cpus) -> Vec<Device> {
        let base = "proc/driver/nvidia/gpus";
        let described = self.names(base).into_iter().filter_map(|address| {
            let text = self.text(format!("{base}/{address}/information"))?;
            let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            let minor: u32 = value("Device Minor:")?.parse().ok()?;
            let cores = self.near(&format!("sys/bus/pci/devices/{address}"), cpus);
            let kind = nvidia_type(value("Model:").unwrap_or_default());
            Some((kind, value("GPU UUID:").unwrap_or_default().to_owned(), minor, cores))
        });
        let one = |((kind, uuid, minor, cores), index): ((String, String, u32, IdSet), u32)| {
            let file = PathBuf::from(format!("/dev/nvidia{minor}"));
            let whole = Device { cores, ..gpu(Vendor::Nvidia, kind, index, file) };
            let instances = self.instances(minor, &uuid, &whole);
            if instances.is_empty() { vec![whole] } else { instances }
        };
        described.zip(0..).flat_map(one).collect()
    }

    /// Returns the MIG instances of a GPU: one device for each compute instance.
    ///
    /// The files of an instance are the GPU's and those that open the GPU instance and the compute instance.
    /// The driver shows neither sizes nor names of instances there.
    fn instances(&self, minor: u32, uuid: &str, whole: &Device) -> Vec<Device> {
        let base = format!("proc/driver/nvidia/capabilities/gpu{minor}/mig");
        let numbers = |path: &str, prefix: &str| {
            let names = self.names(path);
            let mut numbers: Vec<u32> =
                names.iter().filter_map(|name| super::numbered(name, prefix)).collect();
            numbers.sort_unstable();
            numbers
        };
        let capability = |path: &str| {
            let text = self.text(format!("{path}/access"))?;
            let minor = text.lines().find_map(|line| line.strip_prefix("DeviceFileMinor:"))?;
            Some(PathBuf::from(format!("/dev/nvidia-caps/nvidia-cap{}", minor.trim().parse::<u32>().ok()?)))
        };
        let mut found = Vec::new();
        for gi in numbers(&base, "gi") {
            let outer = format!("{base}/gi{gi}");
            for ci in numbers(&outer, "ci") {
                let Some(own) = capability(&outer).zip(capability(&format!("{outer}/ci{ci}"))) else {
                    continue;
                };
                let mut files = whole.files.clone();
                files.extend([own.0, own.1]);
                let (kind, called) = ("mig".to_owned(), format!("MIG-{uuid}/{gi}/{ci}"));
                found.push(Device { kind, called, files, ..whole.clone() });
            }
        }
        found
    }
}

fn gpu(vendor: Vendor, kind: String, index: u32, file: PathBuf) -> Device {
    Device {
        name: "gpu".to_owned(),
        kind,
        vendor: Some(vendor),
        index,
        called: String::new(),
        files: vec![file],
        cores: IdSet::default(),
        links: Vec::new(),
    }
}

/// Returns the number on a line of the compute driver's properties; `None` without such a line.
fn number(properties: &str, key: &str) -> Option<u32> {
    let value = properties.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

/// Returns the type of an AMD GPU; its PCI number if the type is not known by name, so that types never mix.
fn amd_type(device: u32) -> String {
    let known = AMD_TYPES.iter().find(|(id, _)| *id == device);
    known.map_or_else(|| format!("amd_{device:04x}"), |(_, kind)| (*kind).to_owned())
}

/// Returns the type of an NVIDIA GPU: the model without maker, series, form factor, and the words from the
/// memory size on (`NVIDIA H100 80GB HBM3` is `h100`).
fn nvidia_type(model: &str) -> String {
    let noise = ["nvidia", "tesla", "quadro", "geforce", "graphics", "device"];
    let lower = model.to_lowercase();
    let memory = |word: &str| word.strip_suffix("gb").is_some_and(|size| size.parse::<u32>().is_ok());
    let words = lower.split([' ', '-']).filter(|word| !word.is_empty() && !noise.contains(word));
    let kind: Vec<&str> = words.take_while(|word| !memory(word)).collect();
    let name: Vec<&str> =
        kind.into_iter().filter(|word| !["sxm2", "sxm3", "sxm4", "sxm5", "pcie"].contains(word)).collect();
    if name.is_empty() { "nvidia".to_owned() } else { name.join("_") }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    #[test]
    fn nvidia_models_become_types() {
        let cases = [
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA H200", "h200"),
            ("NVIDIA A100-SXM4-40GB", "a100"),
            ("NVIDIA A100 80GB PCIe", "a100"),
            ("Tesla V100-SXM2-16GB", "v100"),
            ("NVIDIA GeForce RTX 4090", "rtx_4090"),
            ("NVIDIA GH200 480GB", "gh200"),
            ("NVIDIA L40S", "l40s"),
            ("", "nvidia"),
        ];
        for (model, kind) in cases {
            assert_eq!(nvidia_type(model), kind, "{model}");
        }
    }

    /// Two sockets of two cores of two threads; the second threads come last in the kernel's count.
    fn cpus() -> Cpus {
        let (threads, places) = (vec![0, 4, 1, 5, 2, 6, 3, 7], Vec::new());
        Cpus { sockets: 2, cores_per_socket: 2, threads_per_core: 2, threads, places }
    }

    #[test]
    fn nvidia_gpus_are_counted_by_bus_address() {
        let information = |minor| format!("Model: \t\t NVIDIA H100 80GB HBM3\nDevice Minor: \t {minor}\n");
        let (first, second) = (information(1), information(0));
        let (_root, kernel) = tree(&[
            ("proc/driver/nvidia/gpus/0000:17:00.0/information", &first),
            ("proc/driver/nvidia/gpus/0000:c7:00.0/information", &second),
            ("sys/bus/pci/devices/0000:17:00.0/local_cpulist", "0-1,4-5\n"),
            ("sys/bus/pci/devices/0000:c7:00.0/local_cpulist", "0-7\n"),
        ]);
        let gpus = kernel.gpus(&cpus());
        let near: Vec<String> = gpus.iter().map(|gpu| gpu.cores.to_string()).collect();
        assert_eq!(near, ["0-1", ""], "all are as good as none");
        let devices: Vec<_> = gpus.iter().map(|gpu| (gpu.index, gpu.files[0].to_str().unwrap())).collect();
        assert_eq!(devices, [(0, "/dev/nvidia1"), (1, "/dev/nvidia0")]);
        assert!(gpus.iter().all(|gpu| gpu.kind == "h100" && gpu.vendor == Some(Vendor::Nvidia)));
    }

    #[test]
    fn mig_instances_stand_in_the_place_of_their_gpu() {
        let information = |minor: u32, uuid: &str| {
            format!("Model: \t NVIDIA A100-SXM4-40GB\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
        };
        let (first, second) = (information(0, "GPU-aa"), information(1, "GPU-bb"));
        let base = "proc/driver/nvidia/capabilities/gpu1/mig";
        let instances =
            [("gi10", 93), ("gi10/ci0", 94), ("gi2", 21), ("gi2/ci0", 22), ("gi2/ci1", 23), ("gi3", 30)];
        let access = instances.map(|(path, minor)| {
            let text = format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
            (format!("{base}/{path}/access"), text)
        });
        let mut files: Vec<(&str, &str)> =
            access.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        files.extend([
            ("proc/driver/nvidia/gpus/0000:17:00.0/information", first.as_str()),
            ("proc/driver/nvidia/gpus/0000:c7:00.0/information", second.as_str()),
            ("sys/bus/pci/devices/0000:c7:00.0/local_cpulist", "2-3,6-7\n"),
        ]);
        let (_root, kernel) = tree(&files);
        let gpus = kernel.gpus(&cpus());
        let found: Vec<_> = gpus
            .iter()
            .map(|gpu| {
                let files: Vec<&str> =
                    gpu.files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
                (gpu.kind.as_str(), gpu.index, gpu.called.as_str(), files.join(" "), gpu.cores.to_string())
            })
            .collect();
        let mig = |called, caps: &str| ("mig", 1, called, format!("nvidia1 {caps}"), "2-3".to_owned());
        let expected = [
            ("a100", 0, "", "nvidia0".to_owned(), String::new()),
            mig("MIG-GPU-bb/2/0", "nvidia-cap21 nvidia-cap22"),
            mig("MIG-GPU-bb/2/1", "nvidia-cap21 nvidia-cap23"),
            mig("MIG-GPU-bb/10/0", "nvidia-cap93 nvidia-cap94"),
        ];
        assert_eq!(found, expected, "an instance without a compute instance is none");
    }

    #[test]
    fn amd_gpus_are_the_nodes_of_the_topology_that_are_no_cpus() {
        let base = "sys/class/kfd/kfd/topology/nodes";
        let properties = |device: u32, minor: u32| {
            format!("cpu_cores_count 0\nvendor_id 4098\ndevice_id {device}\ndrm_render_minor {minor}\n")
        };
        let files = [
            (format!("{base}/0/gpu_id"), "0\n".to_owned()),
            (format!("{base}/0/properties"), "cpu_cores_count 64\ndrm_render_minor 0\n".to_owned()),
            (format!("{base}/2/gpu_id"), "28851\n".to_owned()),
            (format!("{base}/2/properties"), properties(0x74a1, 128)),
            (format!("{base}/10/gpu_id"), "51499\n".to_owned()),
            (format!("{base}/10/properties"), properties(0x1234, 136)),
            (format!("{base}/2/io_links/0/properties"), "type 2\nnode_from 2\nnode_to 0\n".to_owned()),
            (format!("{base}/2/io_links/1/properties"), "type 11\nnode_from 2\nnode_to 10\n".to_owned()),
            (format!("{base}/10/io_links/1/properties"), "type 11\nnode_from 10\nnode_to 2\n".to_owned()),
            ("sys/class/drm/renderD136/device/local_cpulist".to_owned(), "2-3,6-7\n".to_owned()),
        ];
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_root, kernel) = tree(&files);
        let gpu = |kind: &str, index, render: &str| gpu(Vendor::Amd, kind.to_owned(), index, render.into());
        let first = Device { links: vec![0, 1], ..gpu("mi300x", 0, "/dev/dri/renderD128") };
        let cores = "2-3".parse().unwrap();
        let second = Device { links: vec![1, 0], cores, ..gpu("amd_1234", 1, "/dev/dri/renderD136") };
        assert_eq!(kernel.gpus(&cpus()), [first, second]);
    }
}

//! Devices that a step may not use, in the hierarchy of version 2: the kernel asks a program of the step's group about
//! every device that is opened there.
//!
//! The program is laid here by hand (`linux/bpf.h`: `BPF_PROG_TYPE_CGROUP_DEVICE`): it compares what is opened with each
//! device of a list and says no to these. It lives as long as the group.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use step_wire::order::DeviceNumber;

/// Commands, types and flags of bpf(2).
const PROG_LOAD: libc::c_long = 5;
const PROG_ATTACH: libc::c_long = 8;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 2;
/// What the kernel calls a block device and a character device.
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;

/// Registers: what is answered, what is asked about, and of that the kind, the major and the minor number.
const ANSWER: u8 = 0;
const ASKED: u8 = 1;
const KIND: u8 = 2;
const MAJOR: u8 = 3;
const MINOR: u8 = 4;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// The destination in the low half, the source in the high half.
    registers: u8,
    offset: i16,
    value: i32,
}

/// The part of `union bpf_attr` that loads a program.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log: [u32; 4],
    kernel_version: u32,
    flags: u32,
}

/// The part of `union bpf_attr` that attaches one.
#[repr(C)]
struct Attach {
    group: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// Forbids devices to everything in a group; those above it may forbid more.
///
/// # Errors
/// The system's error, such as that this process may not load programs.
pub(crate) fn deny(group: BorrowedFd<'_>, devices: &[DeviceNumber]) -> io::Result<()> {
    let instructions = program(devices)?;
    let load = Load {
        kind: PROG_TYPE_CGROUP_DEVICE,
        count: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        ..Load::default()
    };
    // SAFETY: the kernel reads the instructions and the license during the call, and both live on here.
    let program = unsafe { bpf(PROG_LOAD, &load) }?;
    // SAFETY: it is a new descriptor that nobody else has.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let attach = Attach {
        group: group.as_raw_fd().cast_unsigned(),
        program: program.as_raw_fd().cast_unsigned(),
        kind: CGROUP_DEVICE,
        flags: ALLOW_MULTI,
    };
    // SAFETY: it names two open descriptors and no memory.
    unsafe { bpf(PROG_ATTACH, &attach) }.map(|_| ())
}

/// bpf(2).
///
/// # Safety
/// What `attributes` point to is as the command wants it.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<i32> {
    // SAFETY: the kernel reads as many bytes as it is told.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { i32::try_from(answer).map_err(io::Error::other) }
}

/// The program that says no to these devices and yes to all others.
fn program(devices: &[DeviceNumber]) -> io::Result<Vec<Instruction>> {
    let make = |code, registers, offset, value| Instruction { code, registers, offset, value };
    let load = |register: u8, at| make(0x61, register | ASKED << 4, at, 0);
    let unless = |register, value, skip| make(0x55, register, skip, value);
    // `struct bpf_cgroup_dev_ctx`: the kind below the kind of access, the major and the minor number.
    let mut all = vec![load(KIND, 0), make(0x57, KIND, 0, 0xffff), load(MAJOR, 4), load(MINOR, 8)];
    for (at, device) in devices.iter().enumerate() {
        let number = |number: u32| i32::try_from(number).map_err(io::Error::other);
        let left = devices.len() - at - 1;
        // Over the rest of the list and the two instructions that say yes.
        let to_no = i16::try_from(left * 4 + 2).map_err(io::Error::other)?;
        all.push(unless(KIND, if device.block { BLOCK } else { CHARACTER }, 3));
        all.push(unless(MAJOR, number(device.major)?, 2));
        all.push(unless(MINOR, number(device.minor)?, 1));
        all.push(make(0x05, 0, to_no, 0));
    }
    for answer in [1, 0] {
        all.push(make(0xb7, ANSWER, 0, answer));
        all.push(make(0x95, 0, 0, 0));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program answers, by the rules of the machine that it is for.
    fn answer(program: &[Instruction], asked: [u32; 3]) -> i64 {
        let (mut registers, mut at) = ([0_i64; 11], 0_usize);
        loop {
            let Instruction { code, registers: names, offset, value } = program[at];
            let own = usize::from(names & 0xf);
            let jump = |to: usize| to.checked_add_signed(offset.into()).unwrap();
            at += 1;
            match code {
                0x61 => registers[own] = asked[usize::try_from(offset).unwrap() / 4].into(),
                0x57 => registers[own] &= i64::from(value),
                0x55 if registers[own] != i64::from(value) => at = jump(at),
                0x55 => {}
                0x05 => at = jump(at),
                0xb7 => registers[own] = value.into(),
                0x95 => return registers[0],
                other => panic!("{other:#x}"),
            }
        }
    }

    #[test]
    fn devices_of_the_list_are_denied_and_no_others() {
        let denied = [
            DeviceNumber { block: false, major: 195, minor: 0 },
            DeviceNumber { block: false, major: 195, minor: 3 },
            DeviceNumber { block: true, major: 8, minor: 1 },
        ];
        let program = program(&denied).unwrap();
        let read = |kind: i32, major, minor| answer(&program, [kind.cast_unsigned() | 2 << 16, major, minor]);
        for (kind, major, minor) in [(CHARACTER, 195, 0), (CHARACTER, 195, 3), (BLOCK, 8, 1)] {
            assert_eq!(read(kind, major, minor), 0, "{kind} {major}:{minor}");
        }
        for (kind, major, minor) in
            [(BLOCK, 195, 0), (CHARACTER, 195, 1), (CHARACTER, 8, 1), (CHARACTER, 1, 3)]
        {
            assert_eq!(read(kind, major, minor), 1, "{kind} {major}:{minor}");
        }
    }
}

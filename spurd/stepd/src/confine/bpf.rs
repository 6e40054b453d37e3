//! Denial of devices in the version 2 hierarchy, by a BPF program that the kernel runs for every opened
//! device.
//!
//! The program is assembled by hand (`linux/bpf.h`: `BPF_PROG_TYPE_CGROUP_DEVICE`): it compares the opened
//! device with a list, and denies those on the list. The program lives as long as the step's group.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use step_wire::order::DeviceNumber;

/// Commands, types and flags of bpf(2).
const PROG_LOAD: libc::c_long = 5;
const PROG_ATTACH: libc::c_long = 8;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 2;
/// The kernel's numbers for a block device and a character device.
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;

/// Registers: the answer, the pointer to the question, and the question's kind, major and minor number.
const ANSWER: u8 = 0;
const ASKED: u8 = 1;
const KIND: u8 = 2;
const MAJOR: u8 = 3;
const MINOR: u8 = 4;

/// `struct bpf_insn` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// Destination register in the low half, source register in the high half.
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

/// The part of `union bpf_attr` that attaches a program.
#[repr(C)]
struct Attach {
    group: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// Denies devices to all processes of a group; groups above it may deny more.
///
/// # Errors
/// The system's error, e.g. if this process may not load programs.
pub(crate) fn deny(group: BorrowedFd<'_>, devices: &[DeviceNumber]) -> io::Result<()> {
    let instructions = program(devices)?;
    let load = Load {
        kind: PROG_TYPE_CGROUP_DEVICE,
        count: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        ..Load::default()
    };
    // SAFETY: the kernel reads the instructions and the license during the call, and both outlive it.
    let program = unsafe { bpf(PROG_LOAD, &load) }?;
    // SAFETY: the descriptor is new and has no other owner.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let attach = Attach {
        group: group.as_raw_fd().cast_unsigned(),
        program: program.as_raw_fd().cast_unsigned(),
        kind: CGROUP_DEVICE,
        flags: ALLOW_MULTI,
    };
    // SAFETY: the attributes name two open descriptors and no memory.
    unsafe { bpf(PROG_ATTACH, &attach) }.map(|_| ())
}

/// The system call bpf(2).
///
/// # Safety
/// The memory that `attributes` point to has to be as the command requires.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<i32> {
    // SAFETY: the kernel reads as many bytes as the size argument says.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { i32::try_from(answer).map_err(io::Error::other) }
}

/// Assembles the program that denies these devices and allows all others.
fn program(devices: &[DeviceNumber]) -> io::Result<Vec<Instruction>> {
    let make = |code, registers, offset, value| Instruction { code, registers, offset, value };
    let load = |register: u8, at| make(0x61, register | ASKED << 4, at, 0);
    let unless = |register, value, skip| make(0x55, register, skip, value);
    // `struct bpf_cgroup_dev_ctx`: the kind in the low half below the kind of access, then the major and
    // minor number.
    let mut all = vec![load(KIND, 0), make(0x57, KIND, 0, 0xffff), load(MAJOR, 4), load(MINOR, 8)];
    for (at, device) in devices.iter().enumerate() {
        let number = |number: u32| i32::try_from(number).map_err(io::Error::other);
        let left = devices.len() - at - 1;
        // Jumps over the rest of the list and the two instructions that allow the device.
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

    /// Interprets the program and returns its answer.
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

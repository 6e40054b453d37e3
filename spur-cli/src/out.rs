//! Where a command writes: the standard output, buffered, or a text that somebody wants to look at.

use std::io::{self, BufWriter, Stdout, Write};

/// The output of a command.
pub struct Out(Sink);

enum Sink {
    Standard(BufWriter<Stdout>),
    Memory(Vec<u8>),
}

impl Out {
    /// The process's standard output.
    pub fn standard() -> Out {
        Out(Sink::Standard(BufWriter::new(io::stdout())))
    }

    /// A text in memory.
    pub fn memory() -> Out {
        Out(Sink::Memory(Vec::new()))
    }

    /// What was written into memory, and no more; empty for the standard output.
    pub fn take_text(&mut self) -> String {
        match &mut self.0 {
            Sink::Standard(_) => String::new(),
            Sink::Memory(bytes) => String::from_utf8_lossy(&std::mem::take(bytes)).into_owned(),
        }
    }

    /// Writes what is still buffered.
    ///
    /// # Errors
    /// What the system says.
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Sink::Standard(out) => out.write(bytes),
            Sink::Memory(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Sink::Standard(out) => out.flush(),
            Sink::Memory(_) => Ok(()),
        }
    }
}

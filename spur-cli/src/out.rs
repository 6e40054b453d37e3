//! Output of a command: the buffered standard output, or a text in memory.

use std::io::{self, BufWriter, Stdout, Write};

/// Output of a command.
pub struct Out(Sink);

enum Sink {
    Standard(BufWriter<Stdout>),
    Memory(Vec<u8>),
}

impl Out {
    /// Returns the standard output of the process.
    pub fn standard() -> Out {
        Out(Sink::Standard(BufWriter::new(io::stdout())))
    }

    /// Returns an output in memory.
    pub fn memory() -> Out {
        Out(Sink::Memory(Vec::new()))
    }

    /// Takes the text written to memory; empty for the standard output.
    pub fn take_text(&mut self) -> String {
        match &mut self.0 {
            Sink::Standard(_) => String::new(),
            Sink::Memory(bytes) => String::from_utf8_lossy(&std::mem::take(bytes)).into_owned(),
        }
    }

    /// Writes the buffered output.
    ///
    /// # Errors
    /// The error of the system.
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

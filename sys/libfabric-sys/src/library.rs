//! The library, opened at run time.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::bindings::{fi_info, fi_type, fid_fabric};

/// Name under which the dynamic linker knows every libfabric since 2015.
const NAME: &CStr = c"libfabric.so.1";

/// The oldest usable version: that of the bindings.
pub const OLDEST: (u32, u32) = (1, 17);

/// A version in the form that libfabric's calls take (`FI_VERSION`).
#[must_use]
pub const fn fi_version(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}

type GetInfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(info: *mut fi_info);
type DupInfo = unsafe extern "C" fn(info: *const fi_info) -> *mut fi_info;
type Fabric = unsafe extern "C" fn(
    attr: *mut crate::bindings::fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int;
type StrError = unsafe extern "C" fn(errnum: c_int) -> *const c_char;
type Version = unsafe extern "C" fn() -> u32;
type ToStrR = unsafe extern "C" fn(
    buffer: *mut c_char,
    len: usize,
    data: *const c_void,
    datatype: fi_type,
) -> *mut c_char;

/// An open libfabric.
///
/// It is never closed: providers start threads and leave handlers behind that run the library's
/// code until the process ends. Opening it again returns the same library.
#[derive(Clone, Copy)]
pub struct Library {
    version: (u32, u32),
    getinfo: GetInfo,
    freeinfo: FreeInfo,
    dupinfo: DupInfo,
    fabric: Fabric,
    strerror: StrError,
    tostr: ToStrR,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Why there is no library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The dynamic linker could not load it.
    NotFound {
        /// The name that was asked for.
        name: String,
        /// The linker's words.
        why: String,
    },
    /// It is older than the bindings.
    TooOld {
        /// The version that it reports.
        found: (u32, u32),
    },
    /// It lacks a function, or has it only at another symbol version.
    NoSymbol {
        /// The function and the symbol version.
        symbol: String,
        /// The linker's words.
        why: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { name, why } => write!(f, "{name} could not be loaded: {why}"),
            Self::TooOld { found } => write!(
                f,
                "libfabric {}.{} was found, {}.{} or newer is wanted",
                found.0, found.1, OLDEST.0, OLDEST.1
            ),
            Self::NoSymbol { symbol, why } => write!(f, "libfabric has no {symbol}: {why}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl Library {
    /// Opens the library at `path`, or the one that the dynamic linker finds under the usual name.
    ///
    /// # Errors
    /// [`OpenError`]: it is not there, too old, or not a libfabric.
    pub fn open(path: Option<&Path>) -> Result<Self, OpenError> {
        let handle = Handle::open(path)?;
        // SAFETY: the signatures are those of the headers at these symbol versions; the structures
        // that they take are the ones in `bindings`, which come from the same headers.
        unsafe {
            let version: Version =
                std::mem::transmute(handle.symbol(c"fi_version", c"FABRIC_1.0")?);
            let found = version();
            let found = (found >> 16, found & 0xffff);
            if found < OLDEST {
                return Err(OpenError::TooOld { found });
            }
            Ok(Self {
                version: found,
                getinfo: std::mem::transmute::<*mut c_void, GetInfo>(
                    handle.symbol(c"fi_getinfo", c"FABRIC_1.3")?,
                ),
                freeinfo: std::mem::transmute::<*mut c_void, FreeInfo>(
                    handle.symbol(c"fi_freeinfo", c"FABRIC_1.3")?,
                ),
                dupinfo: std::mem::transmute::<*mut c_void, DupInfo>(
                    handle.symbol(c"fi_dupinfo", c"FABRIC_1.3")?,
                ),
                fabric: std::mem::transmute::<*mut c_void, Fabric>(
                    handle.symbol(c"fi_fabric", c"FABRIC_1.1")?,
                ),
                strerror: std::mem::transmute::<*mut c_void, StrError>(
                    handle.symbol(c"fi_strerror", c"FABRIC_1.0")?,
                ),
                tostr: std::mem::transmute::<*mut c_void, ToStrR>(
                    handle.symbol(c"fi_tostr_r", c"FABRIC_1.4")?,
                ),
            })
        }
    }

    /// The version that the library reports: major and minor.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Lists what providers offer, to be freed by [`fi_freeinfo`](Self::fi_freeinfo). The version
    /// that it asks for is always that of the bindings. See fi_getinfo(3).
    ///
    /// # Safety
    /// The strings must be null or end with a zero byte; `hints` must be null or come from this
    /// library; `info` must be writable.
    pub unsafe fn fi_getinfo(
        &self,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int {
        let version = fi_version(OLDEST.0, OLDEST.1);
        // SAFETY: the caller's promise.
        unsafe { (self.getinfo)(version, node, service, flags, hints, info) }
    }

    /// Frees a list. See fi_getinfo(3).
    ///
    /// # Safety
    /// `info` must come from this library and not be used any more.
    pub unsafe fn fi_freeinfo(&self, info: *mut fi_info) {
        // SAFETY: the caller's promise.
        unsafe { (self.freeinfo)(info) }
    }

    /// Copies one entry of a list, without its successors. See fi_getinfo(3).
    ///
    /// # Safety
    /// `info` must come from this library.
    pub unsafe fn fi_dupinfo(&self, info: *const fi_info) -> *mut fi_info {
        // SAFETY: the caller's promise.
        unsafe { (self.dupinfo)(info) }
    }

    /// Makes an empty description, for hints; null when memory is short. See fi_getinfo(3).
    #[must_use]
    pub fn fi_allocinfo(&self) -> *mut fi_info {
        // SAFETY: null asks for an empty one.
        unsafe { (self.dupinfo)(std::ptr::null()) }
    }

    /// Opens a fabric. See fi_fabric(3).
    ///
    /// # Safety
    /// `attr` must come from this library, `fabric` must be writable.
    pub unsafe fn fi_fabric(
        &self,
        attr: *mut crate::bindings::fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { (self.fabric)(attr, fabric, context) }
    }

    /// An error of libfabric in words; the sign does not matter.
    #[must_use]
    pub fn fi_strerror(&self, error: i64) -> String {
        let number = c_int::try_from(error.unsigned_abs()).unwrap_or(c_int::MAX);
        // SAFETY: any number has a text, which lives as long as the library.
        let text = unsafe { CStr::from_ptr((self.strerror)(number)) };
        text.to_string_lossy().into_owned()
    }

    /// An attribute or a set of flags in words.
    ///
    /// # Safety
    /// `data` must point to a value of the type that `kind` names.
    #[must_use]
    pub unsafe fn fi_tostr(&self, data: *const c_void, kind: fi_type) -> String {
        let mut buffer = [0_u8; 1024];
        // SAFETY: the caller's promise for `data`; the buffer has the given length, and the last
        // byte stays zero.
        unsafe {
            (self.tostr)(buffer.as_mut_ptr().cast(), buffer.len() - 1, data, kind);
        }
        let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(0);
        String::from_utf8_lossy(&buffer[..end]).into_owned()
    }
}

/// The handle that `dlopen` returned.
struct Handle(*mut c_void);

impl Handle {
    fn open(path: Option<&Path>) -> Result<Self, OpenError> {
        let name = match path {
            None => NAME.to_owned(),
            Some(path) => {
                CString::new(path.as_os_str().as_bytes()).map_err(|_| OpenError::NotFound {
                    name: path.display().to_string(),
                    why: "the name has a zero byte".to_owned(),
                })?
            }
        };
        // SAFETY: a string that ends with a zero byte. The library's initialisers run here;
        // libfabric's only prepare its own state.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(OpenError::NotFound {
                name: name.to_string_lossy().into_owned(),
                why: linker_error(),
            });
        }
        Ok(Self(handle))
    }

    /// A function at a symbol version.
    fn symbol(&self, name: &CStr, version: &CStr) -> Result<*mut c_void, OpenError> {
        // SAFETY: an open handle and two strings that end with a zero byte.
        let found = unsafe { libc::dlvsym(self.0, name.as_ptr(), version.as_ptr()) };
        if found.is_null() {
            return Err(OpenError::NoSymbol {
                symbol: format!("{}@{}", name.to_string_lossy(), version.to_string_lossy()),
                why: linker_error(),
            });
        }
        Ok(found)
    }
}

/// The dynamic linker's words for its last failure.
fn linker_error() -> String {
    // SAFETY: the text is the linker's, valid until this thread's next call to it.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "the dynamic linker gives no reason".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = Library::open(Some(Path::new("/nowhere/libfabric.so.1"))).unwrap_err();
        let OpenError::NotFound { name, why } = &error else {
            panic!("{error}");
        };
        assert_eq!(name, "/nowhere/libfabric.so.1");
        assert!(why.contains("No such file"), "{why}");
    }

    #[test]
    fn a_library_that_is_another_is_refused() {
        let error = Library::open(Some(Path::new("libc.so.6"))).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("libfabric has no fi_version@FABRIC_1.0"),
            "{error}"
        );
    }

    #[test]
    fn versions_are_said_in_the_error() {
        let error = OpenError::TooOld { found: (1, 11) }.to_string();
        assert_eq!(error, "libfabric 1.11 was found, 1.17 or newer is wanted");
    }
}

//! Paths of files.

use std::path::Path;

/// The folder of a file: that of a bare name is the current one.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_bare_name_is_the_current_one() {
        let folder = |path| folder_of(Path::new(path));
        assert_eq!(folder("office.toml"), Path::new("."));
        assert_eq!(folder("a/office.toml"), Path::new("a"));
        assert_eq!(folder("/office.toml"), Path::new("/"));
        assert_eq!(folder("/"), Path::new("/"));
    }
}

@0x86c366a91393f3f8;
# The standard file that `-> stream` refers to, without its C++ annotation, so that compiling the schema
# does not depend on what is installed beside the tool. The ids are Cap'n Proto's own.

struct StreamResult @0x995f9a3377c0b16e {
}

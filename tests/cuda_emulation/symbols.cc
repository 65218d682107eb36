#include "tests/cuda_emulation/symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

namespace metp::emulation {
namespace {

using Symbols = std::map<uintptr_t, std::string>;  // functions of the program, mangled

/// ELF, "Symbol Table": sections of type SHT_SYMTAB, with the names in the section that each links to.
Symbols ReadSymbols() {
  Symbols symbols;
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (image.size() < sizeof(Elf64_Ehdr)) return symbols;
  const auto* const header = reinterpret_cast<const Elf64_Ehdr*>(image.data());
  const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(image.data() + header->e_shoff);
  uintptr_t base = 0;
  if (Dl_info info; header->e_type == ET_DYN && dladdr(reinterpret_cast<void*>(&KernelName), &info) != 0) {
    base = reinterpret_cast<uintptr_t>(info.dli_fbase);
  }
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* const table = reinterpret_cast<const Elf64_Sym*>(image.data() + sections[i].sh_offset);
    const char* const names = image.data() + sections[sections[i].sh_link].sh_offset;
    for (size_t k = 0; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k) {
      if (ELF64_ST_TYPE(table[k].st_info) == STT_FUNC)
        symbols[base + table[k].st_value] = names + table[k].st_name;
    }
  }
  return symbols;
}

/// "void metp::cuda::(anonymous namespace)::Scale<float>(float*, long)" -> "Scale<float>".
std::string Short(std::string name) {
  const std::string unnamed = "(anonymous namespace)::";
  if (const size_t at = name.find(unnamed); at != std::string::npos) name.erase(0, at + unnamed.size());
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

}  // namespace

const char* MangledName(const void* kernel) {
  static const Symbols* const symbols = new Symbols(ReadSymbols());
  const auto it = symbols->find(reinterpret_cast<uintptr_t>(kernel));
  return it == symbols->end() ? nullptr : it->second.c_str();
}

std::string KernelName(const void* kernel) {
  const char* const mangled = MangledName(kernel);
  if (mangled == nullptr) return "at 0x" + std::to_string(reinterpret_cast<uintptr_t>(kernel));
  int status = 0;
  char* const demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  const std::string name = status == 0 ? Short(demangled) : mangled;
  std::free(demangled);
  return name;
}

}  // namespace metp::emulation

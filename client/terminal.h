#pragma once

// What the person on the other side can see.

#include <cstdio>

namespace metp {

bool IsTerminal(std::FILE* stream);
/// Columns of the terminal behind `stream`; 80 where there is none.
int TerminalWidth(std::FILE* stream);
/// By LC_ALL, LC_CTYPE, LANG, the first that is set.
bool SpeaksUtf8();

}  // namespace metp

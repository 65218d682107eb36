#include "worker/telemetry/timeline.h"

#include "absl/strings/str_cat.h"
#include "worker/telemetry/chrome_trace.h"

namespace metp {

std::string Timeline::Span::Title() const {
  return detail.empty() ? std::string(name) : absl::StrCat(std::string(name), ", ", std::string(detail));
}

std::string Timeline::ToChromeTrace(const std::string& title) const {
  ChromeTrace trace;
  trace.AddProcess(0, title);
  for (const Span& span : spans_) trace.AddSpan(0, span.track(), span.Title(), span.start, span.seconds);
  return trace.Text();
}

}  // namespace metp

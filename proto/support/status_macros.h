#pragma once

// Return-if-error and assign-or-return for absl::Status, which this Abseil does not bring.

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define METP_CONCAT_INNER(a, b) a##b
#define METP_CONCAT(a, b) METP_CONCAT_INNER(a, b)

#define METP_RETURN_IF_ERROR(expr)                              \
  do {                                                          \
    if (absl::Status metp_status = (expr); !metp_status.ok()) { \
      return metp_status;                                       \
    }                                                           \
  } while (false)

#define METP_ASSIGN_OR_RETURN(lhs, expr) \
  METP_ASSIGN_OR_RETURN_INNER(METP_CONCAT(metp_or_, __LINE__), lhs, expr)
#define METP_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                \
  if (!tmp.ok()) return tmp.status();               \
  lhs = std::move(tmp).value()

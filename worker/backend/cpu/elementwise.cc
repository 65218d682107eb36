// Fill, copy with casts, additions. Kernels over one run of elements, then the operations.

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/dispatch.h"
#include "worker/backend/cpu/shapes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/backend/cpu/elementwise.cc"
#include "hwy/foreach_target.h"  // first of the Highway headers
#include "hwy/highway.h"
#include "worker/backend/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metp::cpu::HWY_NAMESPACE {

/// to += x.
void AddRun(const float* x, float* to, int64_t n) {
  ForEachVector(n, [&](size_t i, auto lanes)
                       HWY_ATTR { lanes.Store(hn::Add(lanes.Load(to + i), lanes.Load(x + i)), to + i); });
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace metp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>

namespace metp::cpu {
HWY_EXPORT(AddRun);
HWY_EXPORT(TargetName);

namespace {

/// The upper half of an fp32, as storage.
struct BFloat16 {
  uint16_t bits;
};

template <class T>
double Widen(T x) {
  return static_cast<double>(x);
}
double Widen(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

template <class T>
T Narrow(double x) {
  return static_cast<T>(x);
}
/// Round to nearest, ties to even; NaN stays NaN.
template <>
BFloat16 Narrow<BFloat16>(double x) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  if (x != x) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

/// Calls f with a null pointer of the C++ type that stands for `type`.
template <class F>
void WithType(DType type, const F& f) {
  switch (type) {
    case DType::kF32:
      return f(static_cast<float*>(nullptr));
    case DType::kBF16:
      return f(static_cast<BFloat16*>(nullptr));
    case DType::kI32:
      return f(static_cast<int32_t*>(nullptr));
    case DType::kF64:
      return f(static_cast<double*>(nullptr));
  }
}

template <class T>
T* Element(const Matrix& m, int64_t row, int64_t col) {
  return static_cast<T*>(m.data) + row * m.stride + col;
}

}  // namespace

std::string InstructionSet() {
  std::string name = HWY_DYNAMIC_DISPATCH(TargetName)();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

void CpuBackend::Fill(const Matrix& x, float value) {
  WithType(x.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T filler = Narrow<T>(value);
    ForEachRun(threads_, x, x.contiguous(),
               [&](int64_t row, int64_t col, int64_t n) { std::fill_n(Element<T>(x, row, col), n, filler); });
  });
}

void CpuBackend::Copy(const Matrix& from, const Matrix& to) {
  Require(SameShape(from, to), "Copy expects equal shapes");
  const bool contiguous = from.contiguous() && to.contiguous();
  WithType(from.type, [&](auto* from_type) {
    using From = std::remove_pointer_t<decltype(from_type)>;
    WithType(to.type, [&](auto* to_type) {
      using To = std::remove_pointer_t<decltype(to_type)>;
      ForEachRun(threads_, to, contiguous, [&](int64_t row, int64_t col, int64_t n) {
        const From* source = Element<From>(from, row, col);
        To* target = Element<To>(to, row, col);
        if constexpr (std::is_same_v<From, To>) {
          std::memcpy(target, source, n * sizeof(To));
        } else {
          for (int64_t i = 0; i < n; ++i) target[i] = Narrow<To>(Widen(source[i]));
        }
      });
    });
  });
}

void CpuBackend::Add(const Matrix& x, const Matrix& to) {
  Require(SameShape(x, to), "Add expects equal shapes");
  const bool contiguous = x.contiguous() && to.contiguous();
  if (x.type == DType::kF32 && to.type == DType::kF32) {
    ForEachRun(threads_, to, contiguous, [&](int64_t row, int64_t col, int64_t n) {
      HWY_DYNAMIC_DISPATCH(AddRun)(At(x, row, col), At(to, row, col), n);
    });
    return;
  }
  WithType(x.type, [&](auto* x_type) {
    using X = std::remove_pointer_t<decltype(x_type)>;
    WithType(to.type, [&](auto* to_type) {
      using To = std::remove_pointer_t<decltype(to_type)>;
      ForEachRun(threads_, to, contiguous, [&](int64_t row, int64_t col, int64_t n) {
        const X* source = Element<X>(x, row, col);
        To* target = Element<To>(to, row, col);
        for (int64_t i = 0; i < n; ++i) target[i] = Narrow<To>(Widen(target[i]) + Widen(source[i]));
      });
    });
  });
}

void CpuBackend::AddBias(const Matrix& bias, const Matrix& x) {
  RequireAddBias(activation(), bias, x);
  ParallelRanges(TeamFor(threads_, x.size()), x.rows, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      HWY_DYNAMIC_DISPATCH(AddRun)(bias.f32(), At(x, row, 0), x.cols);
  });
}

}  // namespace metp::cpu
#endif  // HWY_ONCE

// GELU (tanh form) and SwiGLU. Kernels over one run of elements, then the operations.
//
// gelu(u) = u * s(2z), z = sqrt(2/pi) (u + 0.044715 u^3), s the logistic function: 0.5 (1 + tanh z) = s(2z).
// silu(u) = u * s(u); silu'(u) = s(u) (1 + u (1 - s(u))).

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/shapes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/backend/cpu/activation.cc"
#include "hwy/foreach_target.h"  // first of the Highway headers
#include "hwy/highway.h"
#include "worker/backend/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metp::cpu::HWY_NAMESPACE {

constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

/// s(2z), the share of u that gelu(u) lets through.
HWY_INLINE V32 GeluShare(V32 u) {
  const F32 d;
  const V32 inner = hn::MulAdd(hn::Mul(u, u), hn::Set(d, kCubic), hn::Set(d, 1.0f));
  return Sigmoid(hn::Mul(hn::Mul(u, hn::Set(d, kTwoRootTwoOverPi)), inner));
}

void GeluRun(const float* u, float* m, int64_t n) {
  ForEachVector(n, [&](size_t i, auto lanes) HWY_ATTR {
    const V32 x = lanes.Load(u + i);
    lanes.Store(hn::Mul(x, GeluShare(x)), m + i);
  });
}

void SwiGluRun(const float* u, const float* v, float* m, int64_t n) {
  ForEachVector(n, [&](size_t i, auto lanes) HWY_ATTR {
    const V32 x = lanes.Load(u + i);
    lanes.Store(hn::Mul(hn::Mul(x, Sigmoid(x)), lanes.Load(v + i)), m + i);
  });
}

/// u becomes du, dm becomes m.
void GeluGradientRun(float* u, float* dm, int64_t n) {
  const F32 d;
  ForEachVector(n, [&](size_t i, auto lanes) HWY_ATTR {
    const V32 one = hn::Set(d, 1.0f);
    const V32 x = lanes.Load(u + i);
    const V32 share = GeluShare(x);
    // d(2z)/du = 2 sqrt(2/pi) (1 + 3 * 0.044715 u^2).
    const V32 slope =
        hn::Mul(hn::MulAdd(hn::Mul(x, x), hn::Set(d, 3 * kCubic), one), hn::Set(d, kTwoRootTwoOverPi));
    const V32 derivative = hn::Mul(share, hn::MulAdd(hn::Mul(x, slope), hn::Sub(one, share), one));
    lanes.Store(hn::Mul(lanes.Load(dm + i), derivative), u + i);
    lanes.Store(hn::Mul(x, share), dm + i);
  });
}

/// u becomes du, v becomes dv, dm becomes m.
void SwiGluGradientRun(float* u, float* v, float* dm, int64_t n) {
  const F32 d;
  ForEachVector(n, [&](size_t i, auto lanes) HWY_ATTR {
    const V32 one = hn::Set(d, 1.0f);
    const V32 x = lanes.Load(u + i), y = lanes.Load(v + i), g = lanes.Load(dm + i);
    const V32 s = Sigmoid(x);
    const V32 silu = hn::Mul(x, s);
    const V32 derivative = hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
    lanes.Store(hn::Mul(hn::Mul(g, y), derivative), u + i);
    lanes.Store(hn::Mul(g, silu), v + i);
    lanes.Store(hn::Mul(silu, y), dm + i);
  });
}

}  // namespace metp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metp::cpu {
HWY_EXPORT(GeluRun);
HWY_EXPORT(SwiGluRun);
HWY_EXPORT(GeluGradientRun);
HWY_EXPORT(SwiGluGradientRun);

void CpuBackend::ActivationForward(Activation f, const Matrix& u, const Matrix& v, const Matrix& m) {
  const bool gated = f == Activation::kSwiGlu;
  RequireActivation(activation(), f, u, v, m);
  const bool contiguous = u.contiguous() && m.contiguous() && (!gated || v.contiguous());
  ForEachRun(threads_, m, contiguous, [&](int64_t row, int64_t col, int64_t n) {
    if (gated) {
      HWY_DYNAMIC_DISPATCH(SwiGluRun)(At(u, row, col), At(v, row, col), At(m, row, col), n);
    } else {
      HWY_DYNAMIC_DISPATCH(GeluRun)(At(u, row, col), At(m, row, col), n);
    }
  });
}

void CpuBackend::ActivationBackward(Activation f, const Matrix& u, const Matrix& v, const Matrix& dm) {
  const bool gated = f == Activation::kSwiGlu;
  RequireActivation(activation(), f, u, v, dm);
  const bool contiguous = u.contiguous() && dm.contiguous() && (!gated || v.contiguous());
  ForEachRun(threads_, dm, contiguous, [&](int64_t row, int64_t col, int64_t n) {
    if (gated) {
      HWY_DYNAMIC_DISPATCH(SwiGluGradientRun)(At(u, row, col), At(v, row, col), At(dm, row, col), n);
    } else {
      HWY_DYNAMIC_DISPATCH(GeluGradientRun)(At(u, row, col), At(dm, row, col), n);
    }
  });
}

}  // namespace metp::cpu
#endif  // HWY_ONCE

// GELU (tanh form) and SwiGLU.
//
// gelu(u) = u * s(2z), z = sqrt(2/pi) (u + 0.044715 u^3), s the logistic function: 0.5 (1 + tanh z) = s(2z).
// silu(u) = u * s(u); silu'(u) = s(u) (1 + u (1 - s(u))).

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/walk.h"

namespace metp::cuda {
namespace {

constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

/// s(x). With exact exp and division, instructions would bound these kernels rather than memory.
__device__ inline float Sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

/// s(2z), the share of u that gelu(u) lets through.
__device__ inline float GeluShare(float u) {
  return Sigmoid(u * kTwoRootTwoOverPi * fmaf(u * u, kCubic, 1.0f));
}

template <typename T>
struct Gelu {
  __device__ void operator()(const T& u, T& m) const {
    const float x = ToFloat(u);
    m = FromFloat<T>(x * GeluShare(x));
  }
};

template <typename T>
struct SwiGlu {
  __device__ void operator()(const T& u, const T& v, T& m) const {
    const float x = ToFloat(u);
    m = FromFloat<T>(x * Sigmoid(x) * ToFloat(v));
  }
};

/// u becomes du, dm becomes m.
template <typename T>
struct GeluGradient {
  __device__ void operator()(T& u, T& dm) const {
    const float x = ToFloat(u), share = GeluShare(x);
    // d(2z)/du = 2 sqrt(2/pi) (1 + 3 * 0.044715 u^2).
    const float slope = fmaf(x * x, 3 * kCubic, 1.0f) * kTwoRootTwoOverPi;
    const float derivative = share * fmaf(x * slope, 1.0f - share, 1.0f);
    u = FromFloat<T>(ToFloat(dm) * derivative);
    dm = FromFloat<T>(x * share);
  }
};

/// u becomes du, v becomes dv, dm becomes m.
template <typename T>
struct SwiGluGradient {
  __device__ void operator()(T& u, T& v, T& dm) const {
    const float x = ToFloat(u), y = ToFloat(v), g = ToFloat(dm);
    const float s = Sigmoid(x), silu = x * s;
    const float derivative = s * fmaf(x, 1.0f - s, 1.0f);
    u = FromFloat<T>(g * y * derivative);
    v = FromFloat<T>(g * silu);
    dm = FromFloat<T>(silu * y);
  }
};

}  // namespace

void ActivationForward(cudaStream_t stream, Activation f, const Matrix& u, const Matrix& v, const Matrix& m) {
  WithActivation(m.type, [&]<typename T>(T) {
    if (f == Activation::kSwiGlu) {
      Elementwise(stream, m, SwiGlu<T>{}, In<T>(u), In<T>(v), Out<T>(m));
    } else {
      Elementwise(stream, m, Gelu<T>{}, In<T>(u), Out<T>(m));
    }
  });
}

void ActivationBackward(cudaStream_t stream, Activation f, const Matrix& u, const Matrix& v,
                        const Matrix& dm) {
  WithActivation(dm.type, [&]<typename T>(T) {
    if (f == Activation::kSwiGlu) {
      Elementwise(stream, dm, SwiGluGradient<T>{}, InOut<T>(u), InOut<T>(v), InOut<T>(dm));
    } else {
      Elementwise(stream, dm, GeluGradient<T>{}, InOut<T>(u), InOut<T>(dm));
    }
  });
}

}  // namespace metp::cuda

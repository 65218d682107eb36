// Fill, copy with casts, additions.

#include <type_traits>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/walk.h"

namespace metp::cuda {
namespace {

/// To nearest, ties to even; fp64 becomes bf16 by way of fp32.
template <typename To, typename From>
__device__ inline To Convert(From x) {
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else if constexpr (std::is_same_v<To, double>) {
    return ToFloat(x);
  } else if constexpr (std::is_same_v<From, double>) {
    return FromFloat<To>(static_cast<float>(x));
  } else {
    return FromFloat<To>(ToFloat(x));
  }
}

template <typename T>
struct FillWith {
  float value;
  __device__ void operator()(T& x) const { x = Convert<T>(value); }
};

struct CopyTo {
  template <typename From, typename To>
  __device__ void operator()(const From& from, To& to) const {
    to = Convert<To>(from);
  }
};

/// In fp64 where either is, otherwise in fp32.
struct AddTo {
  template <typename X, typename To>
  __device__ void operator()(const X& x, To& to) const {
    constexpr bool kWide = std::is_same_v<X, double> || std::is_same_v<To, double>;
    using Sum = std::conditional_t<kWide, double, float>;
    to = Convert<To>(Convert<Sum>(to) + Convert<Sum>(x));
  }
};

}  // namespace

void Fill(cudaStream_t stream, const Matrix& x, float value) {
  WithFloat(x.type, [&]<typename T>(T) { Elementwise(stream, x, FillWith<T>{value}, Out<T>(x)); });
}

void Copy(cudaStream_t stream, const Matrix& from, const Matrix& to) {
  WithFloat(from.type, [&]<typename From>(From) {
    WithFloat(to.type,
              [&]<typename To>(To) { Elementwise(stream, to, CopyTo{}, In<From>(from), Out<To>(to)); });
  });
}

void Add(cudaStream_t stream, const Matrix& x, const Matrix& to) {
  WithFloat(x.type, [&]<typename X>(X) {
    WithFloat(to.type, [&]<typename To>(To) { Elementwise(stream, to, AddTo{}, In<X>(x), InOut<To>(to)); });
  });
}

void AddBias(cudaStream_t stream, const Matrix& bias, const Matrix& x) {
  WithActivation(bias.type, [&]<typename Bias>(Bias) {
    WithActivation(x.type, [&]<typename T>(T) {
      Elementwise(stream, x, AddTo{}, In<Bias>(EveryRow(bias, x.rows)), InOut<T>(x));
    });
  });
}

}  // namespace metp::cuda

// The same call on the same values gives the same bits, whatever the order in which threads come to it.

#include "tests/worker/backend/conformance.h"

namespace metp::testing {

TEST_P(BackendConformance, RepeatedSumsAndProductsGiveTheSameBits) {
  const int64_t n = 700, h = 96;
  std::vector<std::vector<char>> first;
  for (int round = 0; round < 4; ++round) {
    Host x = Random(n, h, 1), y = Random(n, h, 2), w = Random(1, h, 3), wide = Random(h, 300, 4);
    const Device a = Activation(x), b = Activation(y), c = Activation(wide), scale = F32(w);
    const Device dx = F32(Host(n, h)), dw = F32(Host(1, h)), db = F32(Host(1, h)), sums = F32(Host(1, h));
    const Device product = F32(Host(n, 300)), narrow = F32(Host(h, h)), table = F32(Host(13, h));
    const Device total(backend(), Host(1, 1), DType::kF64);
    Host ids(n, 1);
    for (int64_t i = 0; i < n; ++i) ids(i, 0) = static_cast<double>(i * 7 % 13);
    backend().NormBackward(Norm::kLayerNorm, a, scale, 1e-5f, b, dx, dw, db);
    backend().AddColumnSums(a, sums);
    backend().SumSquares(dx, total);
    backend().Gemm(1, a, Transpose::kNo, c, Transpose::kNo, 0, product);
    backend().Gemm(1, a, Transpose::kYes, b, Transpose::kNo, 1, narrow);
    backend().EmbeddingScatterAdd(I32(ids), 0, dx, table);
    std::vector<std::vector<char>> got;
    for (const Device* result : {&dx, &dw, &db, &sums, &product, &narrow, &table, &total})
      got.push_back(result->Bytes());
    if (round == 0) first = got;
    EXPECT_EQ(got, first) << "round " << round;
  }
}

}  // namespace metp::testing

// Matrix views: which elements a block, a range of rows or columns, a reshape stand for.

#include "worker/backend/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace metp {
namespace {

class MatrixViews : public ::testing::Test {
 protected:
  MatrixViews() { std::iota(values_.begin(), values_.end(), 0.0f); }
  Matrix Whole() { return {values_.data(), 4, 6, 6, DType::kF32}; }
  static float At(const Matrix& m, int64_t row, int64_t col) { return m.f32()[row * m.stride + col]; }

  std::vector<float> values_ = std::vector<float>(24);
};

TEST_F(MatrixViews, ABlockKeepsTheStride) {
  const Matrix block = Whole().Block(1, 2, 3, 2);
  EXPECT_EQ(block.rows, 2);
  EXPECT_EQ(block.cols, 2);
  EXPECT_EQ(block.stride, 6);
  EXPECT_EQ(At(block, 0, 0), 9);
  EXPECT_EQ(At(block, 1, 1), 16);
  EXPECT_FALSE(block.contiguous());
  EXPECT_EQ(block.bytes(), 16);
}

TEST_F(MatrixViews, RowsStayContiguousAndColumnsDoNot) {
  EXPECT_TRUE(Whole().Rows(1, 3).contiguous());
  EXPECT_EQ(At(Whole().Rows(1, 3), 1, 5), 17);
  EXPECT_FALSE(Whole().Cols(2, 4).contiguous());
  EXPECT_EQ(At(Whole().Cols(2, 4), 3, 1), 21);
}

TEST_F(MatrixViews, BlocksOfBlocksCountFromTheInnerOne) {
  EXPECT_EQ(At(Whole().Block(1, 3, 1, 4).Block(1, 2, 2, 2), 0, 0), 15);
}

TEST_F(MatrixViews, ReshapeStartsAtAnElement) {
  const Matrix m = Whole().Reshape(5, 3, 4);
  EXPECT_EQ(At(m, 0, 0), 5);
  EXPECT_EQ(At(m, 2, 3), 16);
  EXPECT_TRUE(m.contiguous());
}

TEST_F(MatrixViews, OffsetsCountInElementsOfTheType) {
  std::vector<double> doubles = {0, 1, 2, 3, 4, 5};
  const Matrix m{doubles.data(), 2, 3, 3, DType::kF64};
  EXPECT_EQ(m.Block(1, 1, 1, 1).f64()[0], 4);
  EXPECT_EQ(m.bytes(), 48);
  const Matrix half{values_.data(), 2, 3, 3, DType::kBF16};
  EXPECT_EQ(static_cast<char*>(half.Rows(1, 2).data) - static_cast<char*>(half.data), 6);
}

TEST_F(MatrixViews, NothingIsEmpty) {
  EXPECT_TRUE(Whole().Rows(2, 2).empty());
  EXPECT_TRUE(Whole().Cols(0, 0).empty());
  EXPECT_FALSE(Whole().Block(0, 1, 0, 1).empty());
}

}  // namespace
}  // namespace metp
